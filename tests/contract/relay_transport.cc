// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/relay_transport.h"

#include <algorithm>
#include <cstring>

namespace ferry {

RelayTransport::~RelayTransport() {
  lane_.RunAndWait([this] {
    MutexLock lock(relay_.mutex);
    relay_.ends[end_] = nullptr;
    while (!ops_.empty()) End(ops_.begin()->first, absl::AbortedError("the lane is taken down"));
  });
  lane_.RunAndWait([] {});  // tasks that were posted before need the members
}

void RelayTransport::Op::Move(std::vector<std::byte>& message) {
  const bool sends = op.role == LaunchRole::kSend;
  for (size_t at = 0, size = 0; at < message.size(); at += size, next.Advance(size)) {
    std::byte* const local = op.extents[next.extent()] + next.offset();
    size = std::min(message.size() - at, next.left());
    memcpy(sends ? &message[at] : local, sends ? local : &message[at], size);
  }
}

void RelayTransport::Launch(std::vector<TransportOp> ops) {
  for (TransportOp& launched : ops) {
    const OpKey key{launched.transfer, launched.attempt};
    Op& op = *(ops_[key] = std::make_unique<Op>(std::move(launched)));
    if (op.op.role == LaunchRole::kReceive) receives_[op.op.tag] = &op;
    if (op.op.role == LaunchRole::kSend) sends_.Add(op);
  }
  SendNext();
}

void RelayTransport::SendNext() {
  auto* const send = static_cast<Op*>(sends_.Next());
  if (send == nullptr || std::exchange(under_way_, true)) return;
  sent_ = {send->op.transfer, send->op.attempt};
  std::vector<std::byte> message(std::min(send->left(), uint64_t{256} << 10));
  send->Move(message);
  sends_.Serve(message.size());
  auto take = [tag = send->op.tag, message](RelayTransport& other) mutable {
    other.OnMessage(tag, message);
  };
  if (!PostTo(1 - end_, std::move(take)))
    PostTo(end_, [](RelayTransport& self) { self.OnTaken(); });
}

void RelayTransport::OnMessage(uint64_t tag, std::vector<std::byte>& message) {
  if (const auto receive = receives_.find(tag); receive != receives_.end()) {
    Op& op = *receive->second;
    op.Move(message);
    if (op.next.AtEnd()) End({op.op.transfer, op.op.attempt}, absl::OkStatus());
  }
  PostTo(1 - end_, [](RelayTransport& other) { other.OnTaken(); });
}

void RelayTransport::OnTaken() {
  under_way_ = false;
  const auto sent = ops_.find(sent_);
  if (sent != ops_.end() && sent->second->next.AtEnd()) End(sent_, absl::OkStatus());
  SendNext();
}

void RelayTransport::End(OpKey key, absl::Status status) {
  Op& op = *ops_.at(key);
  sends_.Remove(op);
  if (op.op.role == LaunchRole::kReceive) receives_.erase(op.op.tag);
  ops_.erase(key);
  lane_.Post([this, result = OpResult{key.first, key.second, status}] { sink_({result}); });
}

bool RelayTransport::PostTo(int end, std::function<void(RelayTransport&)> task) {
  MutexLock lock(relay_.mutex);
  RelayTransport* const to = relay_.ends[end];
  if (to != nullptr) to->lane_.Post([to, task = std::move(task)] { task(*to); });
  return to != nullptr;
}

}  // namespace ferry
