// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_strays.h"

#include <algorithm>

namespace ferry {

void UcxStrays::Add(uint64_t tag, size_t messages) {
  home_.Check();
  if (messages == 0) return;
  strays_.push_back({tag, messages});
  if (strays_.size() > kMost) strays_.pop_front();
}

bool UcxStrays::Drop(ucp_worker_h worker, size_t most) {
  home_.Check();
  bool any = false;
  for (size_t left = std::min(strays_.size(), most); left > 0; --left) {
    Stray stray = strays_.front();
    strays_.pop_front();
    for (; stray.messages > 0 && DropMessage(worker, stray.tag); --stray.messages) any = true;
    if (stray.messages > 0) strays_.push_back(stray);
  }
  return any;
}

bool UcxStrays::DropMessage(ucp_worker_h worker, uint64_t tag) {
  ucp_tag_recv_info_t info = {};
  const ucp_tag_message_h message =
      api_.ucp_tag_probe_nb(worker, tag, ~uint64_t{0}, /*remove=*/1, &info);
  if (message == nullptr) return false;
  // A receive of no bytes: UCX drops the message, and tells a sender that waits to be done.
  static std::byte nowhere;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = const_cast<UcxApi*>(&api_);
  param.cb.recv = [](void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* user_data) {
    static_cast<const UcxApi*>(user_data)->ucp_request_free(request);
  };
  api_.ucp_tag_msg_recv_nbx(worker, &nowhere, 0, message, &param);
  return true;
}

void UcxStrays::Clear() {
  home_.Check();
  strays_.clear();
}

}  // namespace ferry
