// SPDX-License-Identifier: Apache-2.0
// The `nccl` route on one GPU: groups, one by one, in the order in which they come. A group is
// queued on one stream: what it packs is gathered into staging, its operations run as one NCCL
// group, and what came packed is scattered; a mark behind it says that it is over. The next one is
// queued meanwhile.
//
// Home: the lane, but for the destructor. Nothing here waits, though a call of NCCL's may hang
// until the reaper frees it. A group is answered once, when our memory is no longer touched: one
// whose communicator has ended not before the reaper is done with that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "device/cuda/cuda_stream.h"
#include "device/lane.h"
#include "transfer/nccl/communicator.h"
#include "transfer/pieces.h"

namespace ferry {

// Our part of one chunk: `bytes` of a layout, from where `cursor` is.
struct GroupPart {
  bool send = false;
  uint64_t bytes = 0;
  LayoutCursor cursor;
  absl::InlinedVector<std::byte*, 1> extents;  // where each extent of the layout begins
};

struct GroupOp {
  uint64_t group = 0;
  Communicator* communicator = nullptr;  // outlives the answer
  std::vector<GroupPart> parts;          // in the order of the group's chunks
};

class NcclTransport : private Poller {
 public:
  struct Hooks {
    // How a group ended; from the lane, never from inside a call.
    std::function<void(std::vector<std::pair<uint64_t, absl::Status>>)> over;
    // A communicator is of no use any more: it shall be ended. Its groups wait for that.
    std::function<void(Communicator*, absl::Status)> failed;
  };
  // What a group may have, with what alignment puts in between.
  static constexpr uint64_t kStagingBytes = (uint64_t{64} << 20) + (uint64_t{2} << 20);

  NcclTransport(Lane& lane, Hooks hooks) : lane_(lane), hooks_(std::move(hooks)) {}
  // All communicators are gone, so that nothing on the stream hangs. Not from the lane.
  ~NcclTransport() override;

  // Before the first communicator is open, and after the last one is gone. Where blocking is
  // allowed the stream was made, and is to be destroyed.
  void SetStream(std::unique_ptr<CudaStream> stream) { stream_ = std::move(stream); }
  std::unique_ptr<CudaStream> TakeStream() { return std::move(stream_); }

  void Launch(GroupOp op);
  // The reaper has ended the communicator: what is left on it ends with `why`.
  void Reaped(const Communicator* communicator, const absl::Status& why);

 private:
  struct Group {
    enum Phase : uint8_t {
      kWaiting,  // for its communicator
      kGather,
      kLaunch,
      kScatter,
      kMark,
      kQueued,  // over when `mark` is reached
      kFailed,  // Reaped will say how
      kReaped,  // kMark and kQueued follow, because parts of it may be on the stream
    };
    struct Staged {  // a part and its place in staging
      size_t part = 0;
      std::byte* at = nullptr;
    };
    GroupOp op;
    Phase phase = kWaiting;
    std::vector<Communicator::Operation> operations;
    std::vector<Staged> gather, scatter;
    size_t next = 0;  // of these
    uint64_t mark = 0;
    absl::Status why;  // not OK: it has failed
  };

  bool Poll() override;
  bool Busy() const override { return !groups_.empty(); }
  // Queues what can be. False if it is not all queued yet.
  bool Queue(Group& group);
  absl::Status Plan(Group& group);
  // Copies between parts and staging, one call's worth at most.
  absl::Status Copy(Group& group, std::vector<Group::Staged>& staged);
  void Fail(Group& group, const absl::Status& why);
  bool IsOver(Group& group, absl::Time now);

  Lane& lane_;
  const Hooks hooks_;
  std::unique_ptr<CudaStream> stream_;
  std::deque<Group> groups_;
  std::vector<CopyPiece> pieces_;            // kept for its memory
  bool polled_ = false;                      // by the lane
  absl::Time asked_ = absl::InfinitePast();  // NCCL, for asynchronous errors
};

}  // namespace ferry
