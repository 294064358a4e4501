// SPDX-License-Identifier: Apache-2.0
#include "transfer/local/copy_transport.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

CopyTransport::CopyTransport(Lane& lane, CopyHelper& helper, OpSink sink, StillValid still_valid)
    : lane_(lane), helper_(helper), sink_(std::move(sink)), still_valid_(std::move(still_valid)) {}

CopyTransport::~CopyTransport() {
  lane_.RunAndWait([this] {
    std::vector<OpResult> results = std::exchange(aborted_, {});
    for (const auto& [key, op] : ops_) {
      results.push_back({key.first, key.second,
                         Error(absl::StatusCode::kAborted, Reason::kDraining,
                               absl::StrCat("copying ", key.first.ToString(),
                                            ": its lane is being taken down"))});
    }
    queue_.Clear();
    ops_.clear();
    if (!results.empty()) sink_(std::move(results));
  });
  // A step that was posted before finds nothing to do; it must have run before the members go.
  lane_.RunAndWait([] {});
}

void CopyTransport::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(lane_.IsCurrent());
  for (TransportOp& op : ops) {
    const OpKey key{op.transfer, op.attempt};
    const auto [entry, fresh] = ops_.try_emplace(key, std::make_unique<Op>(std::move(op)));
    FERRY_CHECK(fresh);
    queue_.Add(*entry->second);
  }
  if (!ops.empty()) PostStep();
}

void CopyTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(lane_.IsCurrent());
  const auto found = ops_.find(OpKey{transfer, attempt});
  if (found == ops_.end()) return;
  queue_.Remove(*found->second);
  aborted_.push_back(Finish(found->first, why));
  PostStep();
}

void CopyTransport::PostStep() {
  if (std::exchange(step_posted_, true)) return;
  lane_.Post([this] { Step(); });
}

void CopyTransport::Step() {
  step_posted_ = false;
  std::vector<const Op*> done;
  pieces_.clear();
  for (size_t room = kStepBytes; pieces_.size() + done.size() < kStepPieces;) {
    auto* op = static_cast<Op*>(queue_.Next());
    if (op == nullptr || (room == 0 && op->left() > 0)) break;
    const size_t taken = TakePieces(op->op, std::min(room, kTurnBytes));
    room -= taken;
    queue_.Serve(taken);
    if (!op->waiting()) done.push_back(op);
  }
  helper_.Copy(pieces_);

  std::vector<OpResult> results = std::exchange(aborted_, {});
  results.reserve(results.size() + done.size());
  for (const Op* op : done) {
    absl::Status status;
    if (still_valid_ != nullptr) status = still_valid_(op->op.peer);
    results.push_back(Finish({op->op.transfer, op->op.attempt}, std::move(status)));
  }
  if (!queue_.empty()) PostStep();
  if (!results.empty()) sink_(std::move(results));
}

size_t CopyTransport::TakePieces(TransportOp& op, size_t most) {
  size_t taken = 0;
  while (!op.copy->AtEnd() && taken < most && pieces_.size() < kStepPieces) {
    const Segment segment = op.copy->Next(most - taken);
    pieces_.push_back({segment.local, segment.remote, segment.size});
    taken += segment.size;
  }
  return taken;
}

OpResult CopyTransport::Finish(const OpKey& key, absl::Status status) {
  const OpResult result{key.first, key.second, std::move(status)};
  ops_.erase(key);
  return result;
}

}  // namespace ferry
