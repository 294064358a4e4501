// SPDX-License-Identifier: Apache-2.0
// A Transport moves the bytes of launched transfers. Each lane has one Transport of each kind.
// Implementations: local/ (which also runs `mapped` copies, see mapped/), tcp/, ucx/ and nccl/; all
// pass tests/contract. The smallest one is there: tests/contract/relay_transport.h. On route `nccl`
// only prepared transfers are launched so; posted ones travel in groups, which CommTable launches
// (docs/decisions/2026-11-28-a-route-is-a-transport-and-a-row.md).
//
// Home: the lane of the device. Nothing here waits. Every op is answered exactly once, through the
// sink, and never from inside Launch or Abort. After the answer the transport does not touch the
// op's memory any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "device/copier.h"
#include "device/prepared_batch.h"
#include "transfer/engine.h"
#include "transfer/pieces.h"
#include "transfer/types.h"

namespace ferry {

// Contiguous memory at this end of a kSend or kReceive. The other end may be cut differently: only
// the sum of the sizes is the same.
struct Segment {
  std::byte* local = nullptr;
  size_t size = 0;
};

// The bytes of a kCopy, and where they are. They are cut into pieces only while they are copied, so
// that a million blocks wait as cheaply as one range. Home: its owner's.
class CopyPlan {
 public:
  // `source_extents`, `destination_extents`: where each extent of the layout begins in memory.
  CopyPlan(const Layout& source, absl::InlinedVector<const std::byte*, 1> source_extents,
           const Layout& destination, absl::InlinedVector<std::byte*, 1> destination_extents)
      : bytes_(source.bytes()),
        pieces_(source, destination),
        source_extents_(std::move(source_extents)),
        destination_extents_(std::move(destination_extents)) {}

  uint64_t bytes() const { return bytes_; }  // of the whole copy
  bool AtEnd() const { return pieces_.AtEnd(); }
  // The next piece, of at most `most` bytes (not 0). Not at the end.
  CopyPiece Next(uint64_t most = std::numeric_limits<uint64_t>::max()) {
    const Piece piece = pieces_.Next(most);
    return {destination_extents_[piece.destination_extent] + piece.destination_offset,
            source_extents_[piece.source_extent] + piece.source_offset, piece.length, by_engine_,
            slow_road_};
  }
  void Rewind() { pieces_.Rewind(); }
  // See CopyPiece.
  void SetByEngine(bool by_engine) { by_engine_ = by_engine; }
  void SetSlowRoad(bool slow_road) { slow_road_ = slow_road; }

 private:
  uint64_t bytes_;
  bool by_engine_ = false;
  bool slow_road_ = false;
  PieceCutter pieces_;
  absl::InlinedVector<const std::byte*, 1> source_extents_;
  absl::InlinedVector<std::byte*, 1> destination_extents_;
};

class LinkPage;

// What fires an op that is prepared, and so lasts until it is aborted (transfer/trigger.h).
struct PreparedEnds {
  PreparedBatch* own = nullptr;  // the batch of the half that is launched
  // `local`: the send's batch; null: the link page speaks for the other end.
  PreparedBatch* source = nullptr;
  std::shared_ptr<LinkPage> page;
  // The batch's slot of the page.
  uint32_t slot = 0;
  bool silent = false;  // a GPU may write the words that fire the op, and rings no doorbell
  uint64_t bundle = 0;  // `nccl`: the number of the bundle
  // `nccl`: a firing is its transfers concatenated by ascending `place`.
  uint64_t place = 0;
  bool operator==(const PreparedEnds&) const = default;
};

// One launch of one transfer, as a Transport gets it.
struct TransportOp {
  TransferId transfer;
  uint32_t attempt = 0;
  int32_t priority = 0;  // see FairQueue
  bool prompt = false;   // see TransferSpec
  LaunchRole role = LaunchRole::kCopy;
  PeerId peer;
  GlobalDeviceId remote_device;
  uint64_t tag = 0;
  std::optional<CopyPlan> copy;  // kCopy
  // kSend, kReceive: this end's bytes, and where each of their extents begins in memory.
  Layout layout;
  absl::InlinedVector<std::byte*, 1> extents;
  // kSend, kReceive: what MakeSegments() made of these; none: zero bytes.
  absl::InlinedVector<Segment, 1> segments;
  // Set if the transfer is prepared.
  std::optional<PreparedEnds> prepared;

  // Called on the lane before the op is launched, because a layout may have a million
  // stretches.
  void MakeSegments() {
    for (LayoutCursor at(layout); !at.AtEnd(); at.Advance(at.left())) {
      segments.push_back({extents[at.extent()] + at.offset(), at.left()});
    }
  }
};

// How an op ended.
struct OpResult {
  TransferId transfer;
  uint32_t attempt = 0;
  absl::Status status;
};

// Called on the lane with the ops that ended since the last call; posts to control.
using OpSink = std::function<void(std::vector<OpResult>)>;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual void Launch(std::vector<TransportOp> ops) = 0;
  // Ends an op early, with `why`, if that is possible. The op is still answered once, through the
  // sink.
  virtual void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) = 0;
};

}  // namespace ferry
