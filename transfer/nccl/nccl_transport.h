// SPDX-License-Identifier: Apache-2.0
// The `nccl` route on one GPU: groups, one by one, in the order in which they come. A group is
// queued on one stream: what it packs is gathered into staging, its operations run as one NCCL
// group, and what came packed is scattered; a mark behind it says that it is over. The next one is
// queued meanwhile. What a firing of a bundle copies to and from staging is described in the GPU's
// memory the first time, and only launched from then on, if it is whole: all firings of a group
// with one kernel. Where nothing else is under way that runs before the other end has granted its
// lane (GatherAhead).
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
  // Instead of parts: so many bytes of bundles' firings.
  struct Firing {
    uint64_t bundle = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    bool operator==(const Firing&) const = default;
  };
  std::vector<Firing> firings;  // at most kMaxGroupFirings
};

class NcclTransport : private Poller {
 public:
  struct Hooks {
    // How a group ended; from the lane, never from inside a call.
    std::function<void(std::vector<std::pair<uint64_t, absl::Status>>)> over;
    // A communicator is of no use any more: it shall be ended. Its groups wait for Ended.
    std::function<void(Communicator*, absl::Status)> failed;
    // After Ended, perhaps from inside it: nothing that was gathered ahead for a communicator is
    // under way any more.
    std::function<void(const Communicator*)> let_go;
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
  // A group of firings that may be launched soon, or never: what it sends is gathered, if that is
  // possible and holds up nobody, while both ends agree on it.
  void GatherAhead(GroupOp op);
  void Arm(std::vector<BundleHalf> halves) { bundles_.Arm(std::move(halves)); }
  // Of an armed transfer, which is then answered through the sink.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why);
  // The communicator is being ended, and its state says so: what is left on it ends with `why` as
  // soon as it is off the stream, for which the reaper sees.
  void Ended(const Communicator* communicator, const absl::Status& why);

 private:
  // What moves parts: operations, in memory of ours or in staging of which so much is needed. What
  // is received there is in front.
  struct Operation {
    bool send = false;
    std::byte* memory = nullptr;  // null: it is staged
    uint64_t offset = 0;          // in staging, from where the plan's begins
    uint64_t bytes = 0;
  };
  struct Plan {
    std::vector<Operation> operations;
    uint64_t received = 0, staged = 0;
    // One operation of packed chunks is all there is: what both ends know of each other, so that
    // those of firings that follow each other in a group are one.
    bool packed = false;
  };
  // Of a bundle's whole firing.
  struct FiringPlan : Plan {
    std::optional<CudaStream::Table> gather, scatter;
    bool ready = false;  // whatever tables it needs it has
  };
  // A group's parts, or one of its firings.
  struct Work {
    struct Staged {  // a part and its place in the plan's staging
      size_t part = 0;
      uint64_t at = 0;
    };
    uint64_t bundle = 0;           // not 0: of its firing
    std::vector<GroupPart> parts;  // none if they are not needed
    Plan own;
    FiringPlan* firing = nullptr;  // by which it goes instead
    std::vector<Staged> gather, scatter;
    size_t next = 0;    // of these, where they are copied by themselves
    uint64_t base = 0;  // where the plan's staging begins
    const Plan& plan() const { return firing != nullptr ? *firing : own; }
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
    GroupOp op;
    Phase phase = kWaiting;
    std::vector<Work> works;
    bool gathered = false;  // what of it is sent is in staging already
    uint64_t mark = 0;
    absl::Status why;  // not OK: it has failed
  };

  // What is gathered ahead, and afterwards what of it is in staging.
  struct Ahead {
    uint64_t group = 0;
    std::vector<GroupOp::Firing> firings;
    bool staged = false;                    // as the group's plan has it
    Communicator* under_way_for = nullptr;  // null: it is over
    bool ended = false;                     // and that has been, which waits to be let go
    uint64_t mark = 0;                      // 0: not made yet
    absl::Time overdue;                     // then something hangs; infinite: it has been said
  };
  struct HeldAbort {
    TransferId transfer;
    uint32_t attempt = 0;
    absl::Status why;
  };

  bool Poll() override;
  bool Busy() const override { return !groups_.empty() || ahead_.under_way_for != nullptr; }
  // False if nothing was queued: there is nothing to gather, not whole firings, or it is not known
  // yet how.
  bool QueueAhead(const GroupOp& op);
  // Whether it is over; what waited for that goes on.
  bool FinishAhead();
  // Queues what can be. False if it is not all queued yet.
  bool Queue(Group& group);
  // Plans all of it, and clears what of staging is received into.
  absl::Status PlanGroup(Group& group);
  // Where each of its works has its staging. Of all of it so much is received.
  absl::StatusOr<uint64_t> PlaceWorks(Group& group) const;
  static void PlanParts(Work& work);
  void PlanFiring(Work& work, const GroupOp::Firing& firing);
  void DropPlan(uint64_t bundle);
  absl::Status Launch(Group& group);
  // The next piece of a part, to or from `at` in staging.
  void TakePiece(GroupPart& part, uint64_t base, uint64_t& at);
  // Copies between parts and staging, one call's worth at most. True when all is queued.
  absl::StatusOr<bool> Stage(Group& group, bool gathers);
  absl::Status CopyPieces(Work& work, std::vector<Work::Staged>& staged);
  // Or, if that cannot be, the firing goes as other parts do.
  absl::Status MakeTable(Work& work, bool gathers);
  void Fail(Group& group, const absl::Status& why);
  bool IsOver(Group& group, absl::Time now);

  Lane& lane_;
  const Hooks hooks_;
  std::unique_ptr<CudaStream> stream_;
  NcclBundles bundles_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<FiringPlan>> plans_;  // by bundle
  std::deque<Group> groups_;
  Ahead ahead_;
  // While something is gathered ahead, whose memory must not be let go. At our end bundles_ answers
  // them with all others, when the stream has gone.
  std::vector<HeldAbort> held_;
  // Kept for their memory.
  std::vector<CopyPiece> pieces_;
  std::vector<Communicator::Operation> operations_;
  bool polled_ = false;                      // by the lane
  absl::Time asked_ = absl::InfinitePast();  // NCCL, for asynchronous errors
};

}  // namespace ferry
