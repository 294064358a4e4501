// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_request.h"

#include <algorithm>
#include <utility>

namespace ferry {

UcxBuffer NextUcxMessage(UcxOp& op, UcxMessage& message) {
  const auto& segments = op.op.segments;
  const auto take = [&](size_t most) -> ucp_dt_iov_t {
    while (op.offset == segments[op.segment].size) {
      ++op.segment;
      op.offset = 0;
    }
    const Segment& segment = segments[op.segment];
    const size_t length = std::min(most, segment.size - op.offset);
    return {segment.local + std::exchange(op.offset, op.offset + length), length};
  };
  const ucp_dt_iov_t first = take(message.size);
  if (first.length == message.size) return {first.buffer, message.size};
  message.pieces.push_back(first);
  for (size_t left = message.size - first.length; left > 0; left -= message.pieces.back().length) {
    message.pieces.push_back(take(left));
  }
  return {message.pieces.data(), message.pieces.size(), ucp_dt_make_iov()};
}

ucp_request_param_t UcxRequestParam(UcxMessage& message, const UcxBuffer& buffer) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_DATATYPE;
  param.user_data = &message;
  param.memory_type = message.op->direct ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  param.datatype = buffer.type;
  const ucp_mem_h mapped = message.op->channel->worker->mapped();
  if (message.staged != nullptr && mapped != nullptr) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = mapped;
  }
  return param;
}

}  // namespace ferry
