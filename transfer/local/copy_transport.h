// SPDX-License-Identifier: Apache-2.0
// The one-sided routes, `local` and `mapped`: both ends are mapped here, and one lane copies once,
// by the CPU or by a GPU's copy engine (device/copier.h). For a `mapped` op the source may be a
// lost peer's memory: `still_valid` is asked after the copy and before success is reported
// (mapped/link_page.h).
//
// Home: the lane, but for the destructor. The ops of one Launch are copied together as far as they
// fit a step, so that many small ops stream, and share the copy helper, as one large op does. A
// FairQueue decides whose bytes go into a step: the sessions of the receives take turns. Several
// steps are under way, so that the copier never idles. An op that is ended early is answered when
// no step has bytes of it.
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
  // `still_valid(peer)` is asked on the lane after the copy of each op. If it is not OK, it becomes
  // the op's status.
  using StillValid = std::function<absl::Status(PeerId)>;
  CopyTransport(Lane& lane, std::unique_ptr<Copier> copier, OpSink sink, StillValid still_valid);
  // Answers the ops that are left with ABORTED, and waits for the lane. Not from the lane.
  ~CopyTransport() override;

  // A step is divided into so many turns, which waiting sessions take one after the other.
  static constexpr size_t kTurns = 8;
  // A step of at least so many bytes ends where an op ends that is prompt: whoever waits for the op
  // can go on while the next step is copied. A step costs a GPU 8 us beside the 40 us that these
  // bytes take over NVLink.
  static constexpr size_t kPromptBytes = size_t{16} << 20;

  void Launch(std::vector<TransportOp> ops) override;
  // An op that is under way stops after the steps that have bytes of it.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  using OpKey = std::pair<TransferId, uint32_t>;
  struct Op : FairQueue::Item {
    explicit Op(TransportOp op)
        : Item(SessionOf(op.transfer).value(), op.priority, op.copy->bytes()), op(std::move(op)) {}
    TransportOp op;
    size_t steps = 0;      // steps under way that have bytes of it
    absl::Status failure;  // not OK: the op ends when no step has bytes of it
  };
  using Step = std::vector<Op*>;  // the ops with bytes in a step, once for each turn

  void StartStep();
  // Takes pieces of `op`, of at most `most` bytes, for the step; returns how many bytes they have.
  size_t TakePieces(TransportOp& op, size_t most);
  // Ends the op if all its bytes were moved or it has failed, and no step has bytes of it.
  void EndIfOver(Op& op);

  // Begins steps, takes the steps that are over, answers ops.
  bool Poll() override;
  bool Busy() const override { return !queue_.empty() || !steps_.empty() || !results_.empty(); }

  Lane& lane_;
  const std::unique_ptr<Copier> copier_;
  const OpSink sink_;
  const StillValid still_valid_;
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops_;  // ops that are not answered
  FairQueue queue_;                                      // ops that are not copied to their end
  std::deque<Step> steps_;                               // steps under way, the oldest first
  std::vector<Step> spare_;                              // kept for their memory
  std::vector<OpResult> results_;                        // to be answered by the next Poll
  std::vector<CopyPiece> pieces_;                        // kept for its memory
  bool polled_ = false;                                  // the lane has it as a poller
};

}  // namespace ferry
