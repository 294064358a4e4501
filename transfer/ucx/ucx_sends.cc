// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_sends.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"

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

}  // namespace

void UcxSends::Enqueue(UcxOp& send) {
  home_.Check();
  send.sends = this;
  std::unique_ptr<UcxWindow>& window = send.channel->windows[send.link->key];
  if (window == nullptr) window = std::make_unique<UcxWindow>();
  send.window = window.get();
  window->sends.Add(send);
  if (std::exchange(window->waiting, true)) return;
  send.channel->waiting.push_back(window.get());
}

void UcxSends::Occupy(UcxChannel& channel, UcxWindow& window, size_t bytes) {
  if (window.requests++ == 0) ++channel.open_windows;
  window.bytes += bytes;
}

void UcxSends::Vacate(UcxChannel& channel, UcxWindow& window, size_t bytes) {
  if (--window.requests == 0) --channel.open_windows;
  window.bytes -= bytes;
}

bool UcxSends::Full(const UcxChannel& channel, const UcxWindow& window) const {
  if (window.requests >= kSendsAtOnce) return true;
  // With room for one more, which may come.
  const size_t most =
      staging_.on()
          ? std::min(kStagedAtOnce, staging_.send_bytes() / (channel.open_windows + 1))
          : std::min(kBytesAtOnce, kChannelBytesAtOnce / std::max<size_t>(channel.open_windows, 1));
  return window.bytes >= most;
}

bool UcxSends::Pump(UcxChannel& channel) {
  home_.Check();
  bool any = false;
  // One message for each window in turn, and within it for each session, until none has room.
  for (size_t full = 0; full < channel.waiting.size();) {
    UcxWindow& window = *channel.waiting.front();
    channel.waiting.pop_front();
    window.waiting = !window.sends.empty();
    if (!window.waiting) continue;
    channel.waiting.push_back(&window);
    UcxOp& op = static_cast<UcxOp&>(*window.sends.Next());
    if (Full(channel, window) || (op.staged && !staging_.CanTake(op))) {
      ++full;
      continue;
    }
    full = 0;
    any = true;
    const absl::Status opened = endpoints_.Open(*op.link);
    if (!opened.ok()) {
      op.status = UcxOps::OpError(absl::StatusCode::kUnavailable,
                                  op.posted == 0 ? Reason::kRouteUnavailable : Reason::kCommAborted,
                                  op.op, opened.message());
    }
    if (op.status.ok()) {
      window.sends.Serve(op.messages[op.posted].size);
      Post(op);
    }
    if (!op.status.ok()) window.sends.Remove(op);
    ops_.FinishIfComplete(op);
  }
  return any;
}

void UcxSends::Post(UcxOp& op) {
  UcxMessage& message = op.messages[op.posted++];
  Occupy(*op.channel, *op.window, message.size);
  if (!op.staged) return PassToUcx(message, NextUcxMessage(op, message));
  staging_.Stage(message);
  staging_.Copy(message, [](HostStaging::Message& copied) {
    static_cast<UcxMessage*>(copied.owner)->op->sends->OnCopied(copied);
  });
}

void UcxSends::PassToUcx(UcxMessage& message, const UcxBuffer& buffer) {
  UcxOp& op = *message.op;
  ucp_request_param_t param = UcxRequestParam(message, buffer);
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    UcxMessage& message = *static_cast<UcxMessage*>(user_data);
    UcxSends& sends = *message.op->sends;
    sends.OnSent(message, status);
    sends.ops_.Returned(message, request);
  };
  ++op.in_flight;
  const ucs_status_ptr_t request =
      api_.ucp_tag_send_nbx(op.link->endpoint, buffer.data, buffer.count, op.op.tag, &param);
  if (UCS_PTR_IS_PTR(request)) {
    if (!message.returned) message.request = request;
    return;
  }
  --op.in_flight;
  OnSent(message, UCS_PTR_RAW_STATUS(request));
}

void UcxSends::OnSent(UcxMessage& message, ucs_status_t status) {
  UcxOp& op = *message.op;
  Vacate(*op.channel, *op.window, message.size);
  staging_.Unstage(message);
  if (status == UCS_OK) return;
  ops_.Fail(op, absl::StatusCode::kAborted, Reason::kCommAborted, api_.ucs_status_string(status));
}

void UcxSends::OnCopied(HostStaging::Message& copied) {
  UcxMessage& message = staging_.Copied(copied);
  UcxOp& op = *message.op;
  if (!copied.status.ok()) ops_.Stop(op, Annotate(copied.status, "staging a transfer by ucx"));
  if (op.status.ok()) {
    PassToUcx(message, {copied.memory, copied.size});
  } else {
    Vacate(*op.channel, *op.window, message.size);
    staging_.Unstage(message);
  }
  if (!op.status.ok()) ops_.Stop(op, op.status);
  ops_.FinishIfComplete(op);
}

}  // namespace ferry
