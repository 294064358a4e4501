// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_ops.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

absl::Status TcpOps::OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                             absl::string_view why) {
  const bool receive = op.role == LaunchRole::kReceive;
  return Error(
      code, reason,
      absl::StrCat(receive ? "receiving " : "sending ", op.transfer.ToString(),
                   receive ? " from " : " to ", op.remote_device.ToString(), " by tcp: ", why));
}

TcpOp* TcpOps::Add(TransportOp launched, TcpDeviceLink& link) {
  home_.Check();
  auto& tags = link.tags[launched.role == LaunchRole::kReceive];
  if (tags.contains(launched.tag)) {
    Refuse(launched, OpError(absl::StatusCode::kInternal, Reason::kProtocolError, launched,
                             absl::StrCat("its tag ", launched.tag, " is in use")));
    return nullptr;
  }
  const Key key{launched.transfer, launched.attempt};
  const auto [place, fresh] = ops_.try_emplace(key, std::make_unique<TcpOp>(std::move(launched)));
  FERRY_CHECK(fresh);
  TcpOp& op = *place->second;
  op.link = &link;
  tags.emplace(op.op.tag, &op);
  if (!op.op.prepared) ++active_;
  return &op;
}

void TcpOps::Refuse(const TransportOp& op, absl::Status why) {
  home_.Check();
  results_.push_back({op.transfer, op.attempt, std::move(why)});
}

TcpOp* TcpOps::Find(TransferId transfer, uint32_t attempt) const {
  home_.Check();
  const auto found = ops_.find(Key{transfer, attempt});
  return found == ops_.end() ? nullptr : found->second.get();
}

void TcpOps::End(TcpOp& op, absl::Status status) {
  home_.Check();
  if (std::exchange(op.ended, true)) return;
  op.status = std::move(status);
  TcpDeviceLink& link = *op.link;
  link.tags[op.receive()].erase(op.op.tag);
  if (op.bundle != nullptr) {
    bundles_.Leave(op);
  } else {
    --active_;
  }
  if (op.turn && op.turn->waiting()) link.queues[op.small()].Remove(*op.turn);
  for (std::unique_ptr<TcpChunk>& chunk : link.ready[op.small()]) {
    if (chunk->op == &op) staging_.GiveBack(std::move(chunk));
  }
  std::erase(link.ready[op.small()], nullptr);
  for (const auto& connection : link.connections) {
    connection->out.LetGo(op);
    connection->in.LetGo(op);
  }
  AnswerIfQuiet(op);
}

void TcpOps::EndAll(TcpDeviceLink& link, const absl::Status& status) {
  home_.Check();
  std::vector<TcpOp*> ending;
  for (const auto& [key, op] : ops_) {
    if (op->link == &link && !op->ended) ending.push_back(op.get());
  }
  for (TcpOp* const op : ending) End(*op, status);
}

void TcpOps::AnswerIfQuiet(TcpOp& op) {
  home_.Check();
  if (!op.ended || op.copying > 0) return;
  results_.push_back({op.op.transfer, op.op.attempt, std::move(op.status)});
  ops_.erase(Key{op.op.transfer, op.op.attempt});
}

void TcpOps::Answer() {
  home_.Check();
  if (!results_.empty()) sink_(std::exchange(results_, {}));
}

}  // namespace ferry
