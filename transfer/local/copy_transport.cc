// SPDX-License-Identifier: Apache-2.0
#include "transfer/local/copy_transport.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

CopyTransport::CopyTransport(Lane& lane, std::unique_ptr<Copier> copier, OpSink sink,
                             StillValid still_valid)
    : lane_(lane),
      copier_(std::move(copier)),
      sink_(std::move(sink)),
      still_valid_(std::move(still_valid)) {}

CopyTransport::~CopyTransport() {
  lane_.RunAndWait([this] {
    if (polled_) lane_.RemovePoller(this);
    queue_.Clear();
    // What is under way is over in a moment, and must be before anybody is answered.
    while (!steps_.empty()) {
      if (copier_->TakeOver().has_value()) steps_.pop_front();
    }
    for (const auto& [key, op] : ops_) {
      results_.push_back({key.first, key.second,
                          Error(absl::StatusCode::kAborted, Reason::kDraining,
                                absl::StrCat("copying ", key.first.ToString(),
                                             ": its lane is being taken down"))});
    }
    ops_.clear();
    if (!results_.empty()) sink_(std::exchange(results_, {}));
  });
}

void CopyTransport::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(lane_.IsCurrent());
  if (!std::exchange(polled_, true)) lane_.AddPoller(this);
  for (TransportOp& op : ops) {
    const OpKey key{op.transfer, op.attempt};
    const auto [entry, fresh] = ops_.try_emplace(key, std::make_unique<Op>(std::move(op)));
    FERRY_CHECK(fresh);
    queue_.Add(*entry->second);
  }
}

void CopyTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(lane_.IsCurrent());
  const auto found = ops_.find(OpKey{transfer, attempt});
  if (found == ops_.end()) return;
  Op& op = *found->second;
  op.failure.Update(why);
  queue_.Remove(op);
  EndIfOver(op);
}

bool CopyTransport::Poll() {
  bool progress = !results_.empty();
  while (steps_.size() < copier_->limits().steps && !queue_.empty()) {
    StartStep();
    progress = true;
  }
  while (std::optional<absl::Status> over = copier_->TakeOver()) {
    progress = true;
    Step step = std::move(steps_.front());
    steps_.pop_front();
    for (Op* op : step) {
      if (!over->ok()) {
        op->failure.Update(*over);
        queue_.Remove(*op);
      }
      // Not before its last: an op may be in a step more than once.
      if (--op->steps == 0) EndIfOver(*op);
    }
    step.clear();
    spare_.push_back(std::move(step));
  }
  if (!results_.empty()) sink_(std::exchange(results_, {}));
  return progress || (copier_->limits().by_asking && !steps_.empty());
}

void CopyTransport::StartStep() {
  Step step;
  if (!spare_.empty()) {
    step = std::move(spare_.back());
    spare_.pop_back();
  }
  pieces_.clear();
  const Copier::Limits& limits = copier_->limits();
  for (size_t room = limits.bytes; pieces_.size() + step.size() < limits.pieces;) {
    auto* op = static_cast<Op*>(queue_.Next());
    if (op == nullptr || (room == 0 && op->left() > 0)) break;
    // A step ends as a whole, and what is small does not wait for bytes of what is large.
    if (!step.empty() && op->large() != step.front()->large()) break;
    const size_t taken = TakePieces(op->op, std::min(room, limits.bytes / kTurns));
    room -= taken;
    queue_.Serve(taken);
    ++op->steps;
    step.push_back(op);
    if (op->op.prompt && !op->waiting() && limits.bytes - room >= kPromptBytes) break;
  }
  steps_.push_back(std::move(step));
  copier_->Start(pieces_);
}

size_t CopyTransport::TakePieces(TransportOp& op, size_t most) {
  size_t taken = 0;
  while (!op.copy->AtEnd() && taken < most && pieces_.size() < copier_->limits().pieces) {
    const CopyPiece piece = op.copy->Next(most - taken);
    AddPiece(pieces_, piece);
    taken += piece.size;
  }
  return taken;
}

void CopyTransport::EndIfOver(Op& op) {
  if (op.steps > 0 || op.waiting()) return;
  absl::Status status = op.failure;
  if (status.ok() && still_valid_ != nullptr) status = still_valid_(op.op.peer);
  const OpKey key{op.op.transfer, op.op.attempt};
  results_.push_back({key.first, key.second, std::move(status)});
  ops_.erase(key);
}

}  // namespace ferry
