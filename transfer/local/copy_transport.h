// SPDX-License-Identifier: Apache-2.0
// The one-sided routes of host devices, `local` and `mapped`: both ends are mapped here, the destination's
// lane copies once. What differs is whose memory the source is, which is the caller's affair: a `mapped`
// op carries a check that runs after the copy and before success is told (see mapped/lane_page.h).
#pragma once

#include <functional>

#include "device/host/copy.h"
#include "device/lane.h"
#include "transfer/transport.h"

namespace ferry {

class CopyTransport : public Transport {
 public:
  // `still_valid(peer)` is asked on the lane after each op's copy; not OK becomes the op's status.
  using StillValid = std::function<absl::Status(PeerId)>;
  CopyTransport(Lane& lane, CopyHelper& helper, OpSink sink, StillValid still_valid);
  // Large ops are copied in chunks of at most kChunkBytes, between which the lane runs other tasks.
  static constexpr size_t kChunkBytes = size_t{64} << 20;
  void Launch(std::vector<TransportOp> ops) override;
  // Stops at the next chunk.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  struct Pending;
  void Step();
  Lane& lane_;
  CopyHelper& helper_;
  const OpSink sink_;
  const StillValid still_valid_;
};

}  // namespace ferry
