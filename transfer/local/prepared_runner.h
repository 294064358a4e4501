// SPDX-License-Identifier: Apache-2.0
// The armed prepared transfers of a lane, on `local` and `mapped`: fired by words in shared memory,
// with no task, no message and no allocation. Transfers of the same two batches are a bundle, which
// is fired as one:
//   local: the destination's lane sees both clients' words, copies, and advances both 'over' words;
//   mapped: the source's lane sees its client's word and says so in the link page's slot; the
//   destination's lane, which sees its own client's, copies, looks whether the link was given up
//   meanwhile, and says in the slot that it is done.
//
// Home: the lane, but for constructor and destructor. As for every transport each op is answered
// exactly once, but only because it is aborted or the lane goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "device/copier.h"
#include "device/lane.h"
#include "transfer/transport.h"

namespace ferry {

class PreparedRunner : public Transport, private Poller {
 public:
  PreparedRunner(Lane& lane, std::unique_ptr<Copier> copier, OpSink sink);
  // Answers what is left with ABORTED and waits for the lane. Not from the lane.
  ~PreparedRunner() override;

  // Arms them: kCopy, or kSend of `mapped`.
  void Launch(std::vector<TransportOp> ops) override;
  // Between two firings or in one, of which the destination's bytes are then unspecified; answered
  // when none of its bytes is under way.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  struct Part {
    TransferId transfer;
    uint32_t attempt = 0;
    // Null if it sends. At its beginning unless the bundle is copying.
    std::unique_ptr<CopyPlan> copy;
  };
  struct Bundle {
    PreparedEnds ends;
    bool sends = false;  // the source's half of `mapped`
    std::vector<Part> parts;
    // All pieces of a firing, cut while its parts were armed; or none, if one step does not take
    // them or a part has left since: then each firing cuts them, step by step.
    std::vector<CopyPiece> whole;
    uint64_t whole_bytes = 0;
    bool cut = false;
    uint64_t over = 0;  // firings carried out
    uint64_t told = 0;  // `sends`: to the other end
    size_t next = 0;    // the part to go on with
    bool copying = false;
    size_t steps = 0;               // under way
    bool stopped = false;           // the link was given up: what was copied is not believed
    std::vector<OpResult> leaving;  // aborted; they go when no step is under way
  };

  Bundle& BundleOf(const TransportOp& op);
  // Adds the last part's pieces to `whole`.
  void CutLast(Bundle& bundle);
  bool Ready(const Bundle& bundle) const;
  // Does what its words allow, as far as one step goes; false if that is nothing.
  bool Advance(Bundle& bundle);
  // A firing that was begun has bytes left, and there is room for a step.
  bool CanGoOn(const Bundle& bundle) const;
  void StartStep(Bundle& bundle);
  // Takes the steps that are over.
  bool Collect();
  // All bytes of the firing were moved.
  void EndFiring(Bundle& bundle);
  void Answer(OpResult result);
  void LetLeave(Bundle& bundle);
  // Takes the part out, and an empty bundle too.
  void Remove(Bundle& bundle, TransferId transfer);

  bool Poll() override;
  bool Busy() const override { return !steps_.empty(); }
  bool Watching() const override { return !bundles_.empty(); }
  bool Restless() const override { return silent_ > 0; }
  bool PrepareToPark() override;

  Lane& lane_;
  const std::unique_ptr<Copier> copier_;
  const OpSink sink_;
  bool polled_ = false;                    // by the lane
  size_t silent_ = 0;                      // bundles whose words a GPU may write
  absl::InlinedVector<Bundle*, 8> steps_;  // under way, whose they are: few
  std::vector<std::unique_ptr<Bundle>> bundles_;
  absl::flat_hash_map<std::pair<TransferId, uint32_t>, Bundle*> ops_;
  std::vector<OpResult> answers_;  // to be given by a task
  std::vector<CopyPiece> pieces_;  // of the current step; never grows
};

}  // namespace ferry
