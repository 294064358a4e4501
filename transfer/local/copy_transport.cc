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
    std::vector<OpResult> results;
    for (std::deque<TransportOp>* queue : {&small_, &large_}) {
      for (const TransportOp& op : std::exchange(*queue, {})) {
        results.push_back({op.transfer, op.attempt,
                           Error(absl::StatusCode::kAborted, Reason::kDraining,
                                 absl::StrCat("copying ", op.transfer.ToString(),
                                              ": its lane is being taken down"))});
      }
    }
    aborted_.clear();
    if (!results.empty()) sink_(std::move(results));
  });
  // A step that was posted before finds nothing to do; it must have run before the members go.
  lane_.RunAndWait([] {});
}

void CopyTransport::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(lane_.IsCurrent());
  for (TransportOp& op : ops) {
    FERRY_CHECK(aborted_.try_emplace(OpKey{op.transfer, op.attempt}).second);
    (op.copy->bytes() <= kSmallBytes ? small_ : large_).push_back(std::move(op));
  }
  if (!ops.empty()) PostStep();
}

void CopyTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(lane_.IsCurrent());
  const auto found = aborted_.find(OpKey{transfer, attempt});
  if (found != aborted_.end() && found->second.ok()) found->second = why;
}

void CopyTransport::PostStep() {
  if (std::exchange(step_posted_, true)) return;
  lane_.Post([this] { Step(); });
}

void CopyTransport::Step() {
  step_posted_ = false;
  if (small_.empty() && large_.empty()) return;
  const bool large = small_.empty() || (large_next_ && !large_.empty());
  large_next_ = !large;
  std::deque<TransportOp>& queue = large ? large_ : small_;

  std::vector<TransportOp> done;
  pieces_.clear();
  for (size_t room = kChunkBytes; room != 0 && !queue.empty();) {
    TransportOp op = std::move(queue.front());
    queue.pop_front();
    const bool aborted = !aborted_.find(OpKey{op.transfer, op.attempt})->second.ok();
    if (aborted || TakePieces(op, &room)) {
      done.push_back(std::move(op));
    } else {
      queue.push_back(std::move(op));  // the others have their turn first
      break;
    }
  }
  helper_.Copy(pieces_);

  std::vector<OpResult> results;
  results.reserve(done.size());
  for (const TransportOp& op : done) results.push_back({op.transfer, op.attempt, Finish(op)});
  if (!small_.empty() || !large_.empty()) PostStep();
  if (!results.empty()) sink_(std::move(results));
}

bool CopyTransport::TakePieces(TransportOp& op, size_t* room) {
  while (!op.copy->AtEnd() && *room != 0 && pieces_.size() < kChunkPieces) {
    const Segment segment = op.copy->Next(*room);
    pieces_.push_back({segment.local, segment.remote, segment.size});
    *room -= segment.size;
  }
  return op.copy->AtEnd();
}

absl::Status CopyTransport::Finish(const TransportOp& op) {
  const auto found = aborted_.find(OpKey{op.transfer, op.attempt});
  absl::Status status = std::move(found->second);
  aborted_.erase(found);
  if (status.ok() && still_valid_ != nullptr) status = still_valid_(op.peer);
  return status;
}

}  // namespace ferry
