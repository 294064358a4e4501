// SPDX-License-Identifier: Apache-2.0
// The one-sided routes of host devices, `local` and `mapped`: both ends are mapped here, the
// destination's lane copies once. What differs is whose memory the source is, which is the caller's
// affair: a `mapped` op carries a check that runs after the copy and before success is told (see
// mapped/link_page.h).
//
// Home: the lane, but for the destructor. What one Launch brings is copied together as far as it
// fits a step, so that many small ops stream and share the helper as one large one does. Which
// bytes go into a step a FairQueue says: of the sessions of the receives in turn.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "device/host/copy.h"
#include "device/lane.h"
#include "transfer/fair_queue.h"
#include "transfer/transport.h"

namespace ferry {

class CopyTransport : public Transport {
 public:
  // `still_valid(peer)` is asked on the lane after each op's copy; not OK becomes the op's status.
  using StillValid = std::function<absl::Status(PeerId)>;
  CopyTransport(Lane& lane, CopyHelper& helper, OpSink sink, StillValid still_valid);
  // Answers what is left with ABORTED and waits for the lane. Not from the lane.
  ~CopyTransport() override;

  // One step copies at most so many bytes and pieces; between steps the lane runs other tasks, and
  // what comes in waits for one step at most before it shares. Shorter ones would wake the copy
  // helper more often for the same bytes.
  static constexpr size_t kStepBytes = size_t{8} << 20;
  static constexpr size_t kStepPieces = size_t{16} << 10;
  // What a session has at a turn.
  static constexpr size_t kTurnBytes = size_t{1} << 20;

  void Launch(std::vector<TransportOp> ops) override;
  // An op that is under way stops at the next step.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  using OpKey = std::pair<TransferId, uint32_t>;
  struct Op : FairQueue::Item {
    explicit Op(TransportOp op)
        : Item(SessionOf(op.transfer).value(), op.priority, op.copy->bytes()), op(std::move(op)) {}
    TransportOp op;
  };

  void PostStep();
  void Step();
  // Takes pieces of `op` for the current step, at most `most` bytes; how many bytes they have.
  size_t TakePieces(TransportOp& op, size_t most);
  // Of an op that is out of the queue: forgets it.
  OpResult Finish(const OpKey& key, absl::Status status);

  Lane& lane_;
  CopyHelper& helper_;
  const OpSink sink_;
  const StillValid still_valid_;
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops_;  // that are not answered
  FairQueue queue_;                                      // of those not copied to their end
  std::vector<OpResult> aborted_;                        // to be answered by the next step
  std::vector<CopyPiece> pieces_;                        // of the current step; kept for its memory
  bool step_posted_ = false;
};

}  // namespace ferry
