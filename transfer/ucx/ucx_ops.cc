// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_ops.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {
namespace {

// Results wait for each other at most so long and so many.
constexpr absl::Duration kHold = absl::Microseconds(50);
constexpr size_t kHeld = 64;

}  // namespace

absl::Status UcxOps::OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                             absl::string_view why) {
  const bool receive = op.role == LaunchRole::kReceive;
  return Error(code, reason,
               absl::StrCat(receive ? "receiving " : "sending ", op.transfer.ToString(),
                            receive ? " from " : " to ", op.remote_device.ToString(), " of ",
                            op.peer.ToString(), " by ucx: ", why));
}

UcxOp& UcxOps::Add(TransportOp launched, size_t bytes, UcxDeviceLink& link) {
  home_.Check();
  const Key key{launched.transfer, launched.attempt};
  const auto [place, fresh] = ops_.try_emplace(key, std::make_unique<UcxOp>(launched, bytes));
  FERRY_CHECK(fresh);
  UcxOp& op = *place->second;
  op.link = &link;
  op.channel = link.channel;
  op.messages.resize(UcxMessagesOf(bytes));
  for (UcxMessage& message : op.messages) {
    message.op = &op;
    message.size = std::min(bytes, kUcxMessageBytes);
    bytes -= message.size;
  }
  op.op = std::move(launched);
  ++op.channel->ops;
  return op;
}

void UcxOps::Refuse(const TransportOp& op, Reason reason, absl::string_view why) {
  home_.Check();
  results_.push_back(
      {op.transfer, op.attempt, OpError(absl::StatusCode::kUnavailable, reason, op, why)});
}

UcxOp* UcxOps::Find(TransferId transfer, uint32_t attempt) const {
  home_.Check();
  const auto found = ops_.find(Key{transfer, attempt});
  return found == ops_.end() ? nullptr : found->second.get();
}

void UcxOps::Fail(UcxOp& op, absl::StatusCode code, Reason reason, absl::string_view why) {
  home_.Check();
  if (!op.status.ok()) return;
  op.status = OpError(code, reason, op.op, why);
  failed_.push_back(&op);
}

void UcxOps::Returned(UcxMessage& message, void* request) {
  home_.Check();
  message.request = nullptr;
  message.returned = true;
  --message.op->in_flight;
  api_.ucp_request_free(request);
  FinishIfComplete(*message.op);
}

void UcxOps::FinishIfComplete(UcxOp& op) {
  home_.Check();
  if (!op.complete() || std::exchange(op.finished, true)) return;
  finished_.push_back(&op);
}

void UcxOps::Stop(UcxOp& op, const absl::Status& why) {
  home_.Check();
  if (op.finished && op.status.ok()) return;  // all is there, only to be told
  if (op.status.ok()) op.status = why;
  if (std::exchange(op.link, nullptr) == nullptr) return;
  op.leave_by = MonotonicNow() + kUcxTimeToLeave;
  if (op.receive()) {
    if (op.staged) op.channel->arriving.erase(op.op.tag);
    for (size_t i = 0; i < op.messages.size(); ++i) {
      if (op.messages[i].request != nullptr) {
        api_.ucp_request_cancel(op.channel->worker->get(), op.messages[i].request);
      }
    }
    op.channel->strays.Add(op.op.tag, op.overrun ? std::numeric_limits<size_t>::max()
                                                 : op.messages.size() - op.arrived);
  } else if (op.window != nullptr) {
    op.window->sends.Remove(op);
  }
  FinishIfComplete(op);
}

void UcxOps::StopEach(const std::vector<UcxOp*>& ops, const absl::Status& why) {
  for (UcxOp* const op : ops) Stop(*op, why);
}

void UcxOps::StopAll(UcxDeviceLink& link, const absl::Status& why, bool queued) {
  home_.Check();
  std::vector<UcxOp*> stopped;
  for (const auto& [key, op] : ops_) {
    if (op->link != &link || !(queued || op->receive() || op->posted > 0)) continue;
    stopped.push_back(op.get());
  }
  StopEach(stopped, Annotate(why, absl::StrCat("with ", link.key.second.ToString(), " of ",
                                               link.key.first.ToString())));
}

void UcxOps::StopAll(UcxChannel& channel, const absl::Status& why) {
  home_.Check();
  std::vector<UcxOp*> stopped;
  for (const auto& [key, op] : ops_) {
    if (op->channel == &channel) stopped.push_back(op.get());
  }
  StopEach(stopped, why);
}

void UcxOps::StopFailed() {
  home_.Check();
  for (UcxOp* const op : std::exchange(failed_, {})) Stop(*op, op->status);
}

bool UcxOps::Answer() {
  home_.Check();
  for (UcxOp* const op : std::exchange(finished_, {})) {
    std::erase(failed_, op);
    --op->channel->ops;
    const Key key{op->op.transfer, op->op.attempt};
    results_.push_back({key.first, key.second, std::move(op->status)});
    ops_.erase(key);
  }
  if (results_.empty()) return false;
  if (!ops_.empty() && results_.size() < kHeld) {
    const absl::Time now = MonotonicNow();
    held_since_ = std::min(held_since_, now);
    if (now < held_since_ + kHold) return false;
  }
  held_since_ = absl::InfiniteFuture();
  sink_(std::exchange(results_, {}));
  return true;
}

void UcxOps::AnswerAll() {
  home_.Check();
  for (auto& [key, op] : ops_) results_.push_back({key.first, key.second, std::move(op->status)});
  ops_.clear();
  if (!results_.empty()) sink_(std::exchange(results_, {}));
}

}  // namespace ferry
