// SPDX-License-Identifier: Apache-2.0
// The `nccl` route on one GPU: groups, one by one, in the order in which they come. A group is
// queued on one stream: what it packs is gathered into staging, its operations run as one NCCL
// group, and what came packed is scattered; a mark behind it says that it is over. The next one is
// queued meanwhile. What a firing of a bundle copies to and from staging is described in the GPU's
// memory the first time, and only launched from then on, if it is one group.
//
// Home: the lane, but for the destructor. Nothing here waits, though a call of NCCL's may hang
// until the reaper frees it. A group is answered once, when our memory is no longer touched: that
// is when its mark is reached, also where its communicator is ended, because what the peer's GPU
// writes to is NCCL's memory. What the reaper has still to do then is nobody's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "device/cuda/cuda_stream.h"
#include "device/lane.h"
#include "transfer/nccl/bundles.h"
#include "transfer/nccl/communicator.h"
#include "transfer/nccl/group_part.h"

namespace ferry {

struct GroupOp {
  uint64_t group = 0;
  Communicator* communicator = nullptr;  // outlives the answer
  std::vector<GroupPart> parts;          // in the order of the group's chunks
  // Instead of parts: so many bytes of a bundle's firing.
  struct Firing {
    uint64_t bundle = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  Firing firing = {};
};

class NcclTransport : private Poller {
 public:
  struct Hooks {
    // How a group ended; from the lane, never from inside a call.
    std::function<void(std::vector<std::pair<uint64_t, absl::Status>>)> over;
    // A communicator is of no use any more: it shall be ended. Its groups wait for Ended.
    std::function<void(Communicator*, absl::Status)> failed;
    // Of armed transfers; see NcclBundles.
    OpSink sink = {};
    NcclBundles::Wanted wanted = {};
  };
  // What a group may have, with what alignment puts in between.
  static constexpr uint64_t kStagingBytes = (uint64_t{64} << 20) + (uint64_t{2} << 20);
  // Of the pieces of bundles: 24 bytes for each 64 KiB or less.
  static constexpr uint64_t kTableBytes = uint64_t{8} << 20;
  static constexpr CudaStream::Options kStream = {kStagingBytes, true, kTableBytes};

  NcclTransport(Lane& lane, Hooks hooks)
      : lane_(lane), hooks_(std::move(hooks)), bundles_(lane, hooks_.sink, hooks_.wanted) {}
  // All communicators are gone, so that nothing on the stream hangs. Not from the lane.
  ~NcclTransport() override;

  // Before the first communicator is open, and after the last one is gone. Where blocking is
  // allowed the stream was made, and is to be destroyed.
  void SetStream(std::unique_ptr<CudaStream> stream) { stream_ = std::move(stream); }
  std::unique_ptr<CudaStream> TakeStream();

  void Launch(GroupOp op);
  void Arm(std::vector<BundleHalf> halves) { bundles_.Arm(std::move(halves)); }
  // Of an armed transfer, which is then answered through the sink.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why);
  // The communicator is being ended, and its state says so: what is left on it ends with `why` as
  // soon as it is off the stream, for which the reaper sees.
  void Ended(const Communicator* communicator, const absl::Status& why);

 private:
  // Of a bundle's whole firing.
  struct FiringPlan {
    std::vector<Communicator::Operation> operations;
    uint64_t cleared = 0;
    std::optional<CudaStream::Table> gather, scatter;
    bool ready = false;  // whatever tables it needs it has
  };
  struct Group {
    enum Phase : uint8_t {
      kWaiting,  // for its communicator
      kGather,
      kLaunch,
      kScatter,
      kMark,
      kQueued,  // over when `mark` is reached
      kFailed,  // Ended will say how
      kEnded,   // kMark and kQueued follow, because parts of it may be on the stream
    };
    struct Staged {  // a part and its place in staging
      size_t part = 0;
      std::byte* at = nullptr;
    };
    GroupOp op;
    Phase phase = kWaiting;
    std::vector<Communicator::Operation> operations;
    uint64_t cleared = 0;  // bytes of staging in front, where packed operations are received
    std::vector<Staged> gather, scatter;
    size_t next = 0;             // of these
    FiringPlan* plan = nullptr;  // by which it goes
    uint64_t mark = 0;
    absl::Status why;  // not OK: it has failed
  };

  bool Poll() override;
  bool Busy() const override { return !groups_.empty(); }
  // Queues what can be. False if it is not all queued yet.
  bool Queue(Group& group);
  absl::Status Plan(Group& group);
  absl::Status PlanFiring(Group& group);
  absl::Status Clear(uint64_t bytes);
  void DropPlan(uint64_t bundle);
  // The next piece of a part, to or from `at`.
  void TakePiece(GroupPart& part, std::byte*& at);
  // Copies between parts and staging, one call's worth at most.
  absl::Status Copy(Group& group, std::vector<Group::Staged>& staged);
  // The same by the plan's table, which is made first. True when that is queued, or there is
  // nothing to copy.
  absl::StatusOr<bool> CopyByTable(Group& group, const std::vector<Group::Staged>& staged,
                                   std::optional<CudaStream::Table>& table);
  void Fail(Group& group, const absl::Status& why);
  bool IsOver(Group& group, absl::Time now);

  Lane& lane_;
  const Hooks hooks_;
  std::unique_ptr<CudaStream> stream_;
  NcclBundles bundles_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<FiringPlan>> plans_;  // by bundle
  std::deque<Group> groups_;
  std::vector<CopyPiece> pieces_;            // kept for its memory
  bool polled_ = false;                      // by the lane
  absl::Time asked_ = absl::InfinitePast();  // NCCL, for asynchronous errors
};

}  // namespace ferry
