// SPDX-License-Identifier: Apache-2.0
// The armed prepared transfers of a lane, on `local` and `mapped`. Words in shared memory fire
// them, with no task, no message and no allocation. All transfers between the same two prepared
// batches are a bundle, which is fired as one.
//   local: the destination's lane sees both clients' words, copies, and advances both 'over' words.
//   mapped: the source's lane sees its client's word and stores it in the link page's slot. The
//   destination's lane sees the slot and its own client's word, copies, checks that the link was
//   not given up meanwhile, and counts it in the slot as carried.
//
// Sessions have steps in turn: the next step is of the session whose last step is the longest ago.
// Of one session firings go on in the order in which the lane has found that they may begin, each
// to its end; of those that it found in one look, in the order in which they were armed. Every
// other step goes to a small firing (FairQueue::kSmallBytes) if there is one. So whoever computes
// on what arrives, in parts, has the first part early. Priorities are not looked at. (FairQueue
// itself would allocate.)
//
// Home: the lane, but for constructor and destructor. Each op is answered exactly once, and only
// because it is aborted or the lane is taken down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/ids.h"
#include "device/copier.h"
#include "device/lane.h"
#include "transfer/op_answers.h"
#include "transfer/transport.h"
#include "transfer/trigger.h"

namespace ferry {

class PreparedRunner : public Transport, private Poller {
 public:
  PreparedRunner(Lane& lane, std::unique_ptr<Copier> copier, OpSink sink);
  // Answers the ops that are left with ABORTED, and waits for the lane. Not from the lane.
  ~PreparedRunner() override;

  // Arms the ops: kCopy, or kSend of `mapped`.
  void Launch(std::vector<TransportOp> ops) override;
  // Aborts an op, between two firings or in one; the destination's bytes of that firing are then
  // unspecified. The op is answered when none of its bytes is under way.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  // One transfer of a bundle.
  struct Member {
    TransferId transfer;
    uint32_t attempt = 0;
    // Null in the source's half of `mapped`. At its beginning, unless the bundle is copying.
    std::unique_ptr<CopyPlan> copy;
  };
  // A session that has bundles here.
  struct Flow {
    SessionId session;
    size_t bundles = 0;
    uint64_t turn = 0;   // number of its last step; 0: none
    bool small = false;  // its last step was of a small firing
  };
  struct Bundle {
    Bundle(Lane& lane, const TransportOp& op, Flow& flow);
    Flow& flow;
    const PreparedEnds ends;
    const bool sends;  // the source's half of `mapped`
    std::vector<Member> members;
    uint64_t bytes = 0;  // of all members, in one firing
    // All pieces of a firing, cut while its members were armed. Empty if they do not fit one step,
    // or if a member has left since: then each firing cuts its pieces step by step.
    std::vector<CopyPiece> whole;
    // `whole` holds all pieces.
    bool cut = false;
    uint64_t order = 0;             // in which the bundles were armed
    uint64_t look = 0;              // number of the lane's look that has found that it may begin
    size_t next = 0;                // index of the member to go on with
    size_t steps = 0;               // steps under way
    std::vector<OpResult> leaving;  // aborted ops; they go when no step is under way
    // `sends`: a firing has begun when the other end was told of it; else when the lane has found
    // that it may. It is stopped once the link was given up: the bytes that were copied are not
    // believed.
    Trigger trigger;
  };

  Bundle& BundleOf(const TransportOp& op);
  Flow& FlowOf(SessionId session);
  // Adds the last member's pieces to `whole`.
  void CutLast(Bundle& bundle);
  bool Ready(const Bundle& bundle) const;
  // Does what the bundle's words allow, except for steps; false if that is nothing.
  bool Advance(Bundle& bundle);
  // Begins what may begin, and goes on with sends; false if there is nothing.
  bool Look();
  // There is room for a step.
  bool HasRoom() const { return steps_.size() < copier_->limits().steps; }
  // The bundle whose turn it is; null if none has bytes left.
  Bundle* Next() const;
  // False if there is no room, or nothing to do.
  bool StartSteps();
  void StartStep(Bundle& bundle);
  // Takes the steps that are over.
  bool Collect();
  // All bytes of the bundle's firing were moved.
  void EndFiring(Bundle& bundle);
  void LetLeave(Bundle& bundle);
  // Takes the member out, and the bundle if that was its last member.
  void Remove(Bundle& bundle, TransferId transfer);

  bool Poll() override;
  bool Busy() const override { return !steps_.empty(); }
  bool Watching() const override { return !bundles_.empty(); }
  bool Restless() const override { return silent_ > 0; }
  bool PrepareToPark() override;

  Lane& lane_;
  const std::unique_ptr<Copier> copier_;
  OpAnswers answers_;
  bool polled_ = false;                    // the lane has it as a poller
  uint64_t orders_ = 0;                    // bundles that were armed
  uint64_t looks_ = 0;                     // calls of Poll
  uint64_t turns_ = 0;                     // steps that were started
  size_t silent_ = 0;                      // bundles whose words a GPU may write
  absl::InlinedVector<Bundle*, 8> steps_;  // by step under way: its bundle
  std::vector<std::unique_ptr<Flow>> flows_;
  std::vector<std::unique_ptr<Bundle>> bundles_;  // in the order in which they were armed
  // Those whose firing has begun here, and has bytes that are not under way; has room for all.
  std::vector<Bundle*> waiting_;
  absl::flat_hash_map<std::pair<TransferId, uint32_t>, Bundle*> ops_;
  std::vector<CopyPiece> pieces_;  // pieces of the present step; never grows
};

}  // namespace ferry
