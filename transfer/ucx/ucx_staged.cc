// SPDX-License-Identifier: Apache-2.0
// Messages of a GPU that go by way of host memory: copied out before UCX gets them, or in once it
// has received them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "transfer/ucx/ucx_state.h"

namespace ferry {

void UcxTransport::Impl::SetUpGpu(const UcxOptions& options) {
  size_t wanted = 0, direct = 0;
  for (const auto& channel : channels) {
    const bool wants = channel->worker->kind() == kUcxNet ? options.net_direct : options.shm_direct;
    channel->direct = wants && channel->worker->HandlesCuda();
    wanted += wants;
    direct += channel->direct;
  }
  way = direct == channels.size() ? "direct"
        : direct > 0              ? "direct between hosts, staged within one"
        : wanted > 0              ? "staged: this UCX handles no CUDA memory here"
                                  : absl::StrCat("staged: ", options.why_staged);
}

void UcxTransport::Impl::Stage(Message& message) {
  Op& op = *message.op;
  const auto& segments = op.op.segments;
  const auto skip = [&] {
    while (op.offset == segments[op.segment].size) {
      ++op.segment;
      op.offset = 0;
    }
  };
  skip();
  message.staged = std::make_unique<HostStaging::Message>();
  message.staged->memory = StagingOf(op).Take(message.size);
  FERRY_CHECK(message.staged->memory != nullptr);  // was asked before
  message.staged->size = message.size;
  message.staged->segment = &segments[op.segment];
  message.staged->offset = op.offset;
  message.staged->owner = &message;
  message.staged->over = [](HostStaging::Message& copied) {
    static_cast<Message*>(copied.owner)->op->owner->Copied(copied);
  };
  for (size_t left = message.size; left > 0;) {
    skip();
    const size_t here = std::min(left, segments[op.segment].size - op.offset);
    left -= here;
    op.offset += here;
  }
}

void UcxTransport::Impl::Unstage(Message& message) {
  if (message.staged == nullptr) return;
  StagingOf(*message.op).GiveBack(message.staged->memory);
  message.staged.reset();
}

void UcxTransport::Impl::Copy(Message& message) {
  ++message.op->copying;
  ++message.op->channel->copying;
  StagingOf(*message.op).Copy(*message.staged);
}

void UcxTransport::Impl::CopyOrUnstage(Message& receive) {
  if (receive.staged == nullptr) return;
  if (!receive.op->status.ok()) return Unstage(receive);
  Copy(receive);
}

void UcxTransport::Impl::Copied(HostStaging::Message& copied) {
  Message& message = *static_cast<Message*>(copied.owner);
  Op& op = *message.op;
  --op.copying;
  --op.channel->copying;
  if (!copied.status.ok()) StopOp(op, Annotate(copied.status, "staging a transfer by ucx"));
  if (!op.receive() && op.status.ok()) {
    PassToUcx(message, {copied.memory, copied.size});
  } else {
    if (!op.receive()) Vacate(*op.channel, *op.window, message.size);
    Unstage(message);
  }
  if (!op.status.ok()) StopOp(op, op.status);
  FinishIfComplete(op);
}

bool UcxTransport::Impl::TakeArrivals(Channel& channel, size_t most_ops) {
  bool any = false;
  auto& arriving = channel.arriving;
  const auto take = [&](absl::btree_map<uint64_t, Op*>::iterator receive) {
    Op& op = *receive->second;
    if (!TakeArrival(op)) return false;
    if (op.posted == op.messages.size()) arriving.erase(op.op.tag);
    return any = true;
  };
  ucp_tag_recv_info_t first = {};
  while (!arriving.empty()) {
    if (api.ucp_tag_probe_nb(channel.worker->get(), 0, 0, /*remove=*/0, &first) == nullptr) {
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

bool UcxTransport::Impl::TakeArrival(Op& op) {
  Message& message = op.messages[op.posted];
  if (!staging->in().CanTake(message.size)) return false;
  const ucp_worker_h worker = op.channel->worker->get();
  ucp_tag_recv_info_t info = {};
  const ucp_tag_message_h arrived =
      api.ucp_tag_probe_nb(worker, op.op.tag, ~uint64_t{0}, /*remove=*/1, &info);
  if (arrived == nullptr) return false;
  Stage(message);
  ++op.posted;
  ++op.arrived;
  PostReceive(message, {message.staged->memory, message.size}, arrived);
  return true;
}

}  // namespace ferry
