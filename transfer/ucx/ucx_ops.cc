// SPDX-License-Identifier: Apache-2.0
// What becomes of an op: posted to UCX, returned, stopped, answered.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "transfer/ucx/ucx_state.h"

namespace ferry {
namespace {

// Send requests that UCX has at once, per window. Only sends are bounded: receives are all posted,
// so that two ends which order their ops differently cannot wait for each other.
constexpr size_t kSendsAtOnce = 64;
// Enough for the next message to be agreed on while one is moved.
constexpr size_t kBytesAtOnce = 2 * kUcxMessageBytes;
// While these are with UCX, as many are copied from the GPU.
constexpr size_t kStagedAtOnce = 2 * kBytesAtOnce;
// Of all windows of a channel together, so that what is posted to one peer does not wait for
// hundreds of others: the more of them are open the smaller each is, but for one message, which
// each may have whatever the others do.
constexpr size_t kChannelBytesAtOnce = 8 * kBytesAtOnce;
// Tags of cancelled receives to watch for.
constexpr size_t kMostStrays = 65536;
// Results wait for each other at most so long and so many.
constexpr absl::Duration kHold = absl::Microseconds(50);
constexpr size_t kHeld = 64;
size_t BytesOf(const TransportOp& op) {
  size_t bytes = 0;
  for (const Segment& segment : op.segments) bytes += segment.size;
  return bytes;
}

size_t MessagesOf(size_t bytes) { return (bytes + kUcxMessageBytes - 1) / kUcxMessageBytes; }

}  // namespace

absl::Status UcxTransport::Impl::OpError(absl::StatusCode code, Reason reason,
                                         const TransportOp& op, absl::string_view why) {
  const bool receive = op.role == LaunchRole::kReceive;
  return Error(code, reason,
               absl::StrCat(receive ? "receiving " : "sending ", op.transfer.ToString(),
                            receive ? " from " : " to ", op.remote_device.ToString(), " of ",
                            op.peer.ToString(), " by ucx: ", why));
}

void UcxTransport::Impl::Refuse(const TransportOp& op, Reason reason, absl::string_view why) {
  results.push_back(
      {op.transfer, op.attempt, OpError(absl::StatusCode::kUnavailable, reason, op, why)});
}

void UcxTransport::Impl::Start(TransportOp op) {
  FERRY_CHECK(op.role != LaunchRole::kCopy);
  const auto found = links.find(LinkKey{op.peer, op.remote_device});
  if (found == links.end()) return Refuse(op, Reason::kPeerUnreachable, "it has no UCX address");
  DeviceLink& link = *found->second;
  if (link.channel == nullptr || link.channel->draining) {
    return Refuse(op, Reason::kRouteUnavailable, "the transports it names are not open here");
  }
  const OpKey key{op.transfer, op.attempt};
  size_t bytes = BytesOf(op);
  const auto refuse = [&](Reason reason, absl::string_view why) {
    // Its sender was told to go.
    if (op.role == LaunchRole::kReceive) AddStrays(*link.channel, op.tag, MessagesOf(bytes));
    Refuse(op, reason, why);
  };
  if (!link.lost.ok()) {
    // As RemovePeer was told: the link was lost, or the route is not taken.
    const bool route = HasReason(link.lost, Reason::kRouteUnavailable);
    return refuse(route ? Reason::kRouteUnavailable : Reason::kPeerUnreachable,
                  link.lost.message());
  }
  const absl::Status opened = OpenEndpoint(link);
  if (!opened.ok()) return refuse(Reason::kRouteUnavailable, opened.message());
  const auto [place, fresh] = ops.try_emplace(key, std::make_unique<Op>(op, bytes));
  FERRY_CHECK(fresh);
  Op& state = *place->second;
  state.owner = this;
  state.link = &link;
  state.channel = link.channel;
  state.messages.resize(MessagesOf(bytes));
  for (Message& message : state.messages) {
    message.op = &state;
    message.size = std::min(bytes, kUcxMessageBytes);
    bytes -= message.size;
  }
  state.op = std::move(op);
  state.direct = link.channel->direct && state.op.segments.size() == 1;
  state.staged = staging != nullptr && !state.direct;
  if (state.direct) staging->Enter();
  ++state.channel->ops;
  if (state.receive() && state.staged && !state.messages.empty()) {
    FERRY_CHECK(state.channel->arriving.try_emplace(state.op.tag, &state).second);
  } else if (state.receive()) {
    while (state.status.ok() && state.posted < state.messages.size()) {
      Message& message = state.messages[state.posted++];
      PostReceive(message, NextMessage(state, message));
    }
    FinishIfComplete(state);
  } else if (state.messages.empty()) {
    FinishIfComplete(state);
  } else {
    std::unique_ptr<Window>& window = link.channel->windows[link.key];
    if (window == nullptr) window = std::make_unique<Window>();
    state.window = window.get();
    Enqueue(state);
  }
}

void UcxTransport::Impl::FinishIfComplete(Op& op) {
  if (!op.complete() || std::exchange(op.finished, true)) return;
  finished_ops.push_back(&op);
}

UcxTransport::Impl::Buffer UcxTransport::Impl::NextMessage(Op& op, Message& message) {
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

ucp_request_param_t UcxTransport::Impl::RequestParam(Message& message, const Buffer& buffer) {
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

void UcxTransport::Impl::PostReceive(Message& message, const Buffer& buffer,
                                     ucp_tag_message_h arrived) {
  Op& op = *message.op;
  ucp_request_param_t param = RequestParam(message, buffer);
  // A receive that completes at once would tell no length.
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                     void* user_data) {
    Message& message = *static_cast<Message*>(user_data);
    --message.op->channel->receives_in_flight;
    message.op->owner->Received(message, status, info->length);
    message.op->owner->CopyOrUnstage(message);
    message.op->owner->Returned(message, request);
  };
  ++op.in_flight;
  ++op.channel->receives_in_flight;
  const ucp_worker_h worker = op.channel->worker->get();
  const ucs_status_ptr_t request =
      arrived == nullptr
          ? api.ucp_tag_recv_nbx(worker, buffer.data, buffer.count, op.op.tag, ~uint64_t{0}, &param)
          : api.ucp_tag_msg_recv_nbx(worker, buffer.data, buffer.count, arrived, &param);
  if (UCS_PTR_IS_PTR(request)) {
    if (!message.returned) message.request = request;
    return;
  }
  --op.in_flight;
  --op.channel->receives_in_flight;
  Received(message, UCS_PTR_RAW_STATUS(request), 0);  // an error
  CopyOrUnstage(message);
}

void UcxTransport::Impl::PostSend(Op& op) {
  Message& message = op.messages[op.posted++];
  Occupy(*op.channel, *op.window, message.size);
  if (!op.staged) return PassToUcx(message, NextMessage(op, message));
  Stage(message);
  Copy(message);
}

void UcxTransport::Impl::PassToUcx(Message& message, const Buffer& buffer) {
  Op& op = *message.op;
  ucp_request_param_t param = RequestParam(message, buffer);
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    Message& message = *static_cast<Message*>(user_data);
    message.op->owner->Vacate(*message.op->channel, *message.op->window, message.size);
    message.op->owner->Unstage(message);
    message.op->owner->Sent(message, status);
    message.op->owner->Returned(message, request);
  };
  ++op.in_flight;
  const ucs_status_ptr_t request =
      api.ucp_tag_send_nbx(op.link->endpoint, buffer.data, buffer.count, op.op.tag, &param);
  if (UCS_PTR_IS_PTR(request)) {
    if (!message.returned) message.request = request;
    return;
  }
  --op.in_flight;
  Vacate(*op.channel, *op.window, message.size);
  Unstage(message);
  Sent(message, UCS_PTR_RAW_STATUS(request));
}

void UcxTransport::Impl::Received(Message& message, ucs_status_t status, size_t length) {
  Op& op = *message.op;
  // What came, came: only a cancelled request's message may still be under way.
  if (status != UCS_ERR_CANCELED && !op.staged) ++op.arrived;
  if (status == UCS_OK && length == message.size) return;
  if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) op.overrun = true;
  if (!op.status.ok()) return;
  if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
    op.status = OpError(
        absl::StatusCode::kInternal, Reason::kProtocolError, op.op,
        absl::StrCat("the peer sent ", length, " bytes where ", message.size, " were agreed"));
  } else {
    op.status = OpError(absl::StatusCode::kAborted, Reason::kCommAborted, op.op,
                        api.ucs_status_string(status));
  }
  failed_ops.push_back(&op);
}

void UcxTransport::Impl::Sent(Message& message, ucs_status_t status) {
  Op& op = *message.op;
  if (status == UCS_OK || !op.status.ok()) return;
  op.status = OpError(absl::StatusCode::kAborted, Reason::kCommAborted, op.op,
                      api.ucs_status_string(status));
  failed_ops.push_back(&op);
}

void UcxTransport::Impl::Returned(Message& message, void* request) {
  message.request = nullptr;
  message.returned = true;
  --message.op->in_flight;
  api.ucp_request_free(request);
  FinishIfComplete(*message.op);
}

void UcxTransport::Impl::StopOp(Op& op, const absl::Status& why) {
  if (op.finished && op.status.ok()) return;  // all is there, only to be told
  if (op.status.ok()) op.status = why;
  if (std::exchange(op.link, nullptr) == nullptr) return;
  op.leave_by = MonotonicNow() + kTimeToLeave;
  if (op.receive()) {
    if (op.staged) op.channel->arriving.erase(op.op.tag);
    for (size_t i = 0; i < op.messages.size(); ++i) {
      if (op.messages[i].request != nullptr) {
        api.ucp_request_cancel(op.channel->worker->get(), op.messages[i].request);
      }
    }
    if (op.overrun) {
      AddStrays(*op.channel, op.op.tag, std::numeric_limits<size_t>::max());
    } else {
      AddStrays(*op.channel, op.op.tag, op.messages.size() - op.arrived);
    }
  } else if (op.window != nullptr) {
    op.window->sends.Remove(op);
  }
  FinishIfComplete(op);
}

void UcxTransport::Impl::AddStrays(Channel& channel, uint64_t tag, size_t messages) {
  if (messages == 0) return;
  channel.strays.push_back({tag, messages});
  if (channel.strays.size() > kMostStrays) channel.strays.pop_front();
}

void UcxTransport::Impl::Enqueue(Op& send) {
  send.window->sends.Add(send);
  if (std::exchange(send.window->waiting, true)) return;
  send.channel->waiting.push_back(send.window);
}

void UcxTransport::Impl::Occupy(Channel& channel, Window& window, size_t bytes) {
  if (window.requests++ == 0) ++channel.open_windows;
  window.bytes += bytes;
}

void UcxTransport::Impl::Vacate(Channel& channel, Window& window, size_t bytes) {
  if (--window.requests == 0) --channel.open_windows;
  window.bytes -= bytes;
}

bool UcxTransport::Impl::Full(const Channel& channel, const Window& window) const {
  if (window.requests >= kSendsAtOnce) return true;
  // With room for one more, which may come.
  const size_t most =
      staging != nullptr
          ? std::min(kStagedAtOnce, staging->out().bytes() / (channel.open_windows + 1))
          : std::min(kBytesAtOnce, kChannelBytesAtOnce / std::max<size_t>(channel.open_windows, 1));
  return window.bytes >= most;
}

bool UcxTransport::Impl::PumpSends(Channel& channel) {
  bool any = false;
  // One message for each window in turn, and within it for each session, until none has room.
  for (size_t full = 0; full < channel.waiting.size();) {
    Window& window = *channel.waiting.front();
    channel.waiting.pop_front();
    window.waiting = !window.sends.empty();
    if (!window.waiting) continue;
    channel.waiting.push_back(&window);
    Op& op = static_cast<Op&>(*window.sends.Next());
    if (Full(channel, window) ||
        (op.staged && !staging->out().CanTake(op.messages[op.posted].size))) {
      ++full;
      continue;
    }
    full = 0;
    any = true;
    const absl::Status opened = OpenEndpoint(*op.link);
    if (!opened.ok()) {
      op.status = OpError(absl::StatusCode::kUnavailable,
                          op.posted == 0 ? Reason::kRouteUnavailable : Reason::kCommAborted, op.op,
                          opened.message());
    }
    if (op.status.ok()) {
      window.sends.Serve(op.messages[op.posted].size);
      PostSend(op);
    }
    if (!op.status.ok()) window.sends.Remove(op);
    FinishIfComplete(op);
  }
  return any;
}

bool UcxTransport::Impl::DropStrays(Channel& channel, size_t most) {
  bool any = false;
  for (size_t left = std::min(channel.strays.size(), most); left > 0; --left) {
    Stray stray = channel.strays.front();
    channel.strays.pop_front();
    for (; stray.messages > 0 && DropMessage(channel, stray.tag); --stray.messages) any = true;
    if (stray.messages > 0) channel.strays.push_back(stray);
  }
  return any;
}

bool UcxTransport::Impl::DropMessage(Channel& channel, uint64_t tag) {
  ucp_tag_recv_info_t info = {};
  const ucp_tag_message_h message =
      api.ucp_tag_probe_nb(channel.worker->get(), tag, ~uint64_t{0}, /*remove=*/1, &info);
  if (message == nullptr) return false;
  // A receive of no bytes: UCX drops the message, and tells a sender that waits to be done.
  static std::byte nowhere;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = this;
  param.cb.recv = [](void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* user_data) {
    static_cast<Impl*>(user_data)->api.ucp_request_free(request);
  };
  api.ucp_tag_msg_recv_nbx(channel.worker->get(), &nowhere, 0, message, &param);
  return true;
}

bool UcxTransport::Impl::Answer() {
  for (Op* op : std::exchange(finished_ops, {})) {
    failed_ops.erase(std::remove(failed_ops.begin(), failed_ops.end(), op), failed_ops.end());
    --op->channel->ops;
    const OpKey key{op->op.transfer, op->op.attempt};
    results.push_back({key.first, key.second, std::move(op->status)});
    ops.erase(key);
  }
  if (results.empty()) return false;
  if (!ops.empty() && results.size() < kHeld) {
    const absl::Time now = MonotonicNow();
    held_since = std::min(held_since, now);
    if (now < held_since + kHold) return false;
  }
  held_since = absl::InfiniteFuture();
  sink(std::exchange(results, {}));
  return true;
}

}  // namespace ferry
