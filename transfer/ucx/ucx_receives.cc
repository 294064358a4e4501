// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_receives.h"

#include <algorithm>
#include <cstdint>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

void UcxReceives::Post(UcxOp& receive) {
  home_.Check();
  receive.receives = this;
  if (receive.staged && !receive.messages.empty()) {
    FERRY_CHECK(receive.channel->arriving.try_emplace(receive.op.tag, &receive).second);
    return;
  }
  while (receive.status.ok() && receive.posted < receive.messages.size()) {
    UcxMessage& message = receive.messages[receive.posted++];
    PostMessage(message, NextUcxMessage(receive, message));
  }
  ops_.FinishIfComplete(receive);
}

void UcxReceives::PostMessage(UcxMessage& message, const UcxBuffer& buffer,
                              ucp_tag_message_h arrived) {
  UcxOp& op = *message.op;
  ucp_request_param_t param = UcxRequestParam(message, buffer);
  // A receive that completes at once would tell no length.
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                     void* user_data) {
    UcxMessage& message = *static_cast<UcxMessage*>(user_data);
    UcxReceives& receives = *message.op->receives;
    --message.op->channel->receives_in_flight;
    receives.OnReceived(message, status, info->length);
    receives.ops_.Returned(message, request);
  };
  ++op.in_flight;
  ++op.channel->receives_in_flight;
  const ucp_worker_h worker = op.channel->worker->get();
  const ucs_status_ptr_t request =
      arrived == nullptr
          ? api_.ucp_tag_recv_nbx(worker, buffer.data, buffer.count, op.op.tag, ~uint64_t{0},
                                  &param)
          : api_.ucp_tag_msg_recv_nbx(worker, buffer.data, buffer.count, arrived, &param);
  if (UCS_PTR_IS_PTR(request)) {
    if (!message.returned) message.request = request;
    return;
  }
  --op.in_flight;
  --op.channel->receives_in_flight;
  OnReceived(message, UCS_PTR_RAW_STATUS(request), 0);  // an error
}

void UcxReceives::OnReceived(UcxMessage& message, ucs_status_t status, size_t length) {
  UcxOp& op = *message.op;
  // What came, came: only a cancelled request's message may still be under way.
  if (status != UCS_ERR_CANCELED && !op.staged) ++op.arrived;
  if (status == UCS_OK && length == message.size) {
    // As agreed.
  } else if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
    op.overrun = true;
    ops_.Fail(
        op, absl::StatusCode::kInternal, Reason::kProtocolError,
        absl::StrCat("the peer sent ", length, " bytes where ", message.size, " were agreed"));
  } else {
    ops_.Fail(op, absl::StatusCode::kAborted, Reason::kCommAborted, api_.ucs_status_string(status));
  }
  if (message.staged == nullptr) return;
  if (!op.status.ok()) return staging_.Unstage(message);
  staging_.Copy(message, [](HostStaging::Message& copied) {
    static_cast<UcxMessage*>(copied.owner)->op->receives->OnCopied(copied);
  });
}

void UcxReceives::OnCopied(HostStaging::Message& copied) {
  UcxMessage& message = staging_.Copied(copied);
  UcxOp& op = *message.op;
  if (!copied.status.ok()) ops_.Stop(op, Annotate(copied.status, "staging a transfer by ucx"));
  staging_.Unstage(message);
  if (!op.status.ok()) ops_.Stop(op, op.status);
  ops_.FinishIfComplete(op);
}

bool UcxReceives::TakeArrivals(UcxChannel& channel, size_t most_ops) {
  home_.Check();
  bool any = false;
  auto& arriving = channel.arriving;
  const auto take = [&](absl::btree_map<uint64_t, UcxOp*>::iterator receive) {
    UcxOp& op = *receive->second;
    if (!TakeArrival(op)) return false;
    if (op.posted == op.messages.size()) arriving.erase(op.op.tag);
    return any = true;
  };
  ucp_tag_recv_info_t first = {};
  while (!arriving.empty()) {
    if (api_.ucp_tag_probe_nb(channel.worker->get(), 0, 0, /*remove=*/0, &first) == nullptr) {
      return any;
    }
    const auto receive = arriving.find(first.sender_tag);
    if (receive == arriving.end()) break;
    if (!take(receive)) return any;  // there is no memory for it
  }
  // The first one is for somebody who is not here yet, or not any more: look behind it.
  for (size_t left = std::min(most_ops, arriving.size()); left > 0 && !arriving.empty(); --left) {
    auto receive = arriving.upper_bound(channel.looked_at);
    if (receive == arriving.end()) receive = arriving.begin();
    channel.looked_at = receive->first;
    while (receive != arriving.end() && take(receive)) {
      receive = arriving.find(channel.looked_at);
    }
  }
  return any;
}

bool UcxReceives::TakeArrival(UcxOp& op) {
  UcxMessage& message = op.messages[op.posted];
  if (!staging_.CanTake(op)) return false;
  const ucp_worker_h worker = op.channel->worker->get();
  ucp_tag_recv_info_t info = {};
  const ucp_tag_message_h arrived =
      api_.ucp_tag_probe_nb(worker, op.op.tag, ~uint64_t{0}, /*remove=*/1, &info);
  if (arrived == nullptr) return false;
  staging_.Stage(message);
  ++op.posted;
  ++op.arrived;
  PostMessage(message, {message.staged->memory, message.size}, arrived);
  return true;
}

}  // namespace ferry
