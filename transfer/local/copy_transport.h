// SPDX-License-Identifier: Apache-2.0
// The one-sided routes, `local` and `mapped`: both ends are mapped here, one lane copies once, by
// the CPU or by a GPU's copy engine (device/copier.h). Whose memory the source is, is the caller's
// affair: a `mapped` op carries a check that runs after the copy and before success is told (see
// mapped/link_page.h).
//
// Home: the lane, but for the destructor. What one Launch brings is copied together as far as it
// fits a step, so that many small ops stream and share the helper as one large one does. Which
// bytes go into a step a FairQueue says: of the sessions of the receives in turn. Several steps are
// under way, so that who copies never idles; an op that is ended early is answered when none of its
// bytes is in one.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "device/copier.h"
#include "device/lane.h"
#include "transfer/fair_queue.h"
#include "transfer/transport.h"

namespace ferry {

class CopyTransport : public Transport, private Poller {
 public:
  // `still_valid(peer)` is asked on the lane after each op's copy; not OK becomes the op's status.
  using StillValid = std::function<absl::Status(PeerId)>;
  CopyTransport(Lane& lane, std::unique_ptr<Copier> copier, OpSink sink, StillValid still_valid);
  // Answers what is left with ABORTED and waits for the lane. Not from the lane.
  ~CopyTransport() override;

  // A step is shared in so many turns: sessions that wait have one after the other.
  static constexpr size_t kTurns = 8;

  void Launch(std::vector<TransportOp> ops) override;
  // An op that is under way stops at the next step.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  using OpKey = std::pair<TransferId, uint32_t>;
  struct Op : FairQueue::Item {
    explicit Op(TransportOp op)
        : Item(SessionOf(op.transfer).value(), op.priority, op.copy->bytes()), op(std::move(op)) {}
    TransportOp op;
    size_t steps = 0;      // under way, with bytes of it
    absl::Status failure;  // not OK: it ends when there are none
  };
  using Step = std::vector<Op*>;  // whose bytes are in it; as often as it has turns

  void StartStep();
  // Takes pieces of `op` for the step, at most `most` bytes; how many bytes they have.
  size_t TakePieces(TransportOp& op, size_t most);
  // All bytes were moved, or it failed; none is under way.
  void EndIfOver(Op& op);

  // Begins steps, takes those that are over, answers.
  bool Poll() override;
  bool Busy() const override { return !queue_.empty() || !steps_.empty() || !results_.empty(); }

  Lane& lane_;
  const std::unique_ptr<Copier> copier_;
  const OpSink sink_;
  const StillValid still_valid_;
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops_;  // that are not answered
  FairQueue queue_;                                      // of those not copied to their end
  std::deque<Step> steps_;                               // under way
  std::vector<Step> spare_;                              // kept for their memory
  std::vector<OpResult> results_;                        // to be answered by the next Poll
  std::vector<CopyPiece> pieces_;                        // kept for its memory
  bool polled_ = false;                                  // by the lane
};

}  // namespace ferry
