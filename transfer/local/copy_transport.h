// SPDX-License-Identifier: Apache-2.0
// The one-sided routes of host devices, `local` and `mapped`: both ends are mapped here, the
// destination's lane copies once. What differs is whose memory the source is, which is the caller's
// affair: a `mapped` op carries a check that runs after the copy and before success is told (see
// mapped/link_page.h).
//
// Home: the lane, but for the destructor. What one Launch brings is copied together as far as it
// fits a step, so that many small ops stream and share the helper as one large one does.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "device/host/copy.h"
#include "device/lane.h"
#include "transfer/transport.h"

namespace ferry {

class CopyTransport : public Transport {
 public:
  // `still_valid(peer)` is asked on the lane after each op's copy; not OK becomes the op's status.
  using StillValid = std::function<absl::Status(PeerId)>;
  CopyTransport(Lane& lane, CopyHelper& helper, OpSink sink, StillValid still_valid);
  // Answers what is left with ABORTED and waits for the lane. Not from the lane.
  ~CopyTransport() override;

  // One step copies at most so many bytes and pieces; between steps the lane runs other tasks.
  static constexpr size_t kChunkBytes = size_t{64} << 20;
  static constexpr size_t kChunkPieces = size_t{64} << 10;
  // Ops up to here are copied in steps of their own, every other one, so that none waits behind
  // more than one step of large ones. Those take turns.
  static constexpr size_t kSmallBytes = size_t{1} << 20;

  void Launch(std::vector<TransportOp> ops) override;
  // Stops at the next chunk.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  using OpKey = std::pair<TransferId, uint32_t>;
  void PostStep();
  void Step();
  // Takes pieces of `op` until `room` or the step's pieces are used up; true if that was its last.
  bool TakePieces(TransportOp& op, size_t* room);
  absl::Status Finish(const TransportOp& op);

  Lane& lane_;
  CopyHelper& helper_;
  const OpSink sink_;
  const StillValid still_valid_;
  std::deque<TransportOp> small_;
  std::deque<TransportOp> large_;
  absl::flat_hash_map<OpKey, absl::Status>
      aborted_;                    // every op that is not answered; OK if not aborted
  std::vector<CopyPiece> pieces_;  // of the current step; kept for its memory
  bool large_next_ = false;
  bool step_posted_ = false;
};

}  // namespace ferry
