// SPDX-License-Identifier: Apache-2.0
// How a message is given to UCX, the same for sends and receives. Functions without state. Home:
// the lane.
#pragma once

#include <cstddef>

#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_records.h"

namespace ferry {

// The memory of a message, as UCX takes it.
struct UcxBuffer {
  void* data = nullptr;
  size_t count = 0;
  ucp_datatype_t type = ucp_dt_make_contig(1);
};

// Cuts the next message, which is not staged, off the op's segments.
UcxBuffer NextUcxMessage(UcxOp& op, UcxMessage& message);
// What UCX is told with the buffer, but for the callback. Its argument is the message.
ucp_request_param_t UcxRequestParam(UcxMessage& message, const UcxBuffer& buffer);

}  // namespace ferry
