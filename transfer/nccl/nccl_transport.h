// SPDX-License-Identifier: Apache-2.0
// The `nccl` route on one GPU: keeps prepared transfers, as every Transport does, and launches
// groups, one by one, in the order in which they come. A group is queued on one stream. The bytes
// that it packs are gathered into staging, its operations run as one NCCL group, and the bytes that
// came packed are scattered; a mark behind that says that the group is over. The next group is
// queued meanwhile. For whole firings of a bundle, the copies to and from staging are described in
// GPU memory the first time, and only launched from then on, those of all firings of a group with
// one kernel. If nothing else is under way, that gathering runs before the other end has granted
// its lane (GatherAhead).
//
// Home: the lane, but for the destructor. Nothing here waits, though a call of NCCL may hang until
// the reaper frees it. A group is answered once, when it touches our memory no more: when its mark
// is reached. That is so even if its communicator is ended, because the peer's GPU writes to NCCL's
// memory only. Nobody waits for what the reaper still has to do then.
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
#include "base/home.h"
#include "device/cuda/cuda_stream.h"
#include "device/lane.h"
#include "transfer/nccl/bundles.h"
#include "transfer/nccl/communicator.h"
#include "transfer/nccl/group_part.h"
#include "transfer/transport.h"

namespace ferry {

// A group, as this lane launches it.
struct GroupOp {
  uint64_t group = 0;
  Communicator* communicator = nullptr;  // outlives the answer
  std::vector<GroupPart> parts;          // in the order of the group's chunks
  // Instead of `parts`: bytes [offset, offset + bytes) of a bundle's firing.
  struct Firing {
    uint64_t bundle = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    bool operator==(const Firing&) const = default;
  };
  std::vector<Firing> firings;  // at most kMaxGroupFirings
};

class NcclTransport : public Transport, private Poller {
 public:
  struct Hooks {
    // Groups have ended. Called from the lane, never from inside a call.
    std::function<void(std::vector<std::pair<uint64_t, absl::Status>>)> over;
    // The communicator is of no use any more: end it. Its groups wait for Ended().
    std::function<void(Communicator*, absl::Status)> failed;
    // Called after Ended(), or inside it: nothing that was gathered ahead for the communicator is
    // under way any more.
    std::function<void(const Communicator*)> let_go;
    // For armed transfers; see NcclBundles.
    OpSink sink = {};
    NcclBundles::Wanted wanted = {};
  };
  // The staging memory of a lane: what one group stages (GroupCutter::Options::group_bytes), and 1
  // MiB of gaps of alignment for each direction.
  static constexpr uint64_t kStagingBytes = (uint64_t{64} << 20) + (uint64_t{2} << 20);
  // GPU memory for the tables of bundles: 24 bytes for each piece of up to 64 KiB.
  static constexpr uint64_t kTableBytes = uint64_t{8} << 20;
  static constexpr CudaStream::Options kStream = {kStagingBytes, true, kTableBytes};

  NcclTransport(Lane& lane, Hooks hooks)
      : lane_(lane), hooks_(std::move(hooks)), bundles_(lane, hooks_.sink, hooks_.wanted) {}
  // All communicators must be gone, so that nothing on the stream hangs. Not from the lane.
  ~NcclTransport() override;

  // SetStream(): before the first communicator is open. TakeStream(): after the last one is gone.
  // The stream must be made and destroyed where blocking is allowed.
  void SetStream(std::unique_ptr<CudaStream> stream) {
    home_.Check();
    stream_ = std::move(stream);
  }
  std::unique_ptr<CudaStream> TakeStream();

  // Keeps prepared transfers (each op has `prepared`) until they are aborted. Groups of firings
  // move their bytes; Hooks::wanted says when one may be made.
  void Launch(std::vector<TransportOp> ops) override;
  // Aborts a transfer that it keeps.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;
  void LaunchGroup(GroupOp op);
  // `op` is a group of firings that may be launched soon, or never. Gathers the bytes that it
  // sends, if that is possible and holds up nothing, while both ends agree on the group.
  void GatherAhead(GroupOp op);
  // The communicator is being ended, and its state says so. Groups that are left on it end with
  // `why` as soon as they are off the stream, which the reaper brings about.
  void Ended(const Communicator* communicator, const absl::Status& why);

 private:
  // One NCCL operation of a plan, in memory of ours or in staging. In staging, the bytes that are
  // received are in front.
  struct Operation {
    bool send = false;
    std::byte* memory = nullptr;  // null: it is staged
    uint64_t offset = 0;          // in staging, from the plan's base
    uint64_t bytes = 0;
  };
  // The operations that move some parts, and how much staging they need.
  struct Plan {
    std::vector<Operation> operations;
    uint64_t received = 0, staged = 0;
    // The plan is a single operation that packs several chunks. Both ranks can tell, so consecutive
    // packed firings of a group are merged into one NCCL operation.
    bool packed = false;
  };
  // The plan of a bundle's whole firing, which is kept.
  struct FiringPlan : Plan {
    std::optional<CudaStream::Table> gather, scatter;
    bool ready = false;  // it has the tables that it needs
  };
  // The parts of a group, or one of its firings.
  struct Work {
    struct Staged {  // a part and its place in the plan's staging
      size_t part = 0;
      uint64_t at = 0;
    };
    uint64_t bundle = 0;           // not 0: the work is that bundle's firing
    std::vector<GroupPart> parts;  // empty if they are not needed
    Plan own;
    FiringPlan* firing = nullptr;  // the plan by which it goes instead of `own`
    std::vector<Staged> gather, scatter;
    // How many of `gather` or `scatter` are copied, where they are copied one by one.
    size_t next = 0;
    uint64_t base = 0;  // where the plan's staging begins
    const Plan& plan() const { return firing != nullptr ? *firing : own; }
  };
  struct Group {
    enum Phase : uint8_t {
      kWaiting,  // waits until its communicator is open
      kGather,
      kLaunch,
      kScatter,
      kMark,
      kQueued,  // all is queued; over when `mark` is reached
      kFailed,  // nothing more is queued; Ended() will say how it ended
      kEnded,   // ended early; kMark and kQueued follow, because parts of it may be on the stream
    };
    GroupOp op;
    Phase phase = kWaiting;
    std::vector<Work> works;
    bool gathered = false;  // the bytes that it sends are in staging already
    uint64_t mark = 0;
    absl::Status why;  // not OK: the group has failed
  };

  // The gather that runs ahead of its group; once it is over, what of it is still in staging.
  struct Ahead {
    uint64_t group = 0;
    std::vector<GroupOp::Firing> firings;
    bool staged = false;  // the bytes are in staging, as the group's plan has them
    Communicator* under_way_for = nullptr;  // null: the gather is over
    bool ended = false;  // that communicator has ended; `let_go` is due when the gather is over
    uint64_t mark = 0;   // 0: not made yet
    absl::Time overdue;  // if it is not over then, something hangs; infinite: that was reported
  };
  struct HeldAbort {
    TransferId transfer;
    uint32_t attempt = 0;
    absl::Status why;
  };

  bool Poll() override;
  bool Busy() const override { return !groups_.empty() || ahead_.under_way_for != nullptr; }
  // Queues the gather of `op`'s sends. False if nothing was queued: there is nothing to gather, a
  // firing is not whole, or its plan is not known yet.
  bool QueueAhead(const GroupOp& op);
  // Whether the gather ahead has just ended; what waited for that goes on.
  bool FinishAhead();
  // Queues as much of the group as possible. False if not all of it is queued.
  bool Queue(Group& group);
  // Plans the group's works, and clears the staging that is received into.
  absl::Status PlanGroup(Group& group);
  // Gives each of the group's works its place in staging. Returns how many bytes of it are received
  // into.
  absl::StatusOr<uint64_t> PlaceWorks(Group& group) const;
  static void PlanParts(Work& work);
  void PlanFiring(Work& work, const GroupOp::Firing& firing);
  void DropPlan(uint64_t bundle);
  absl::Status LaunchOperations(Group& group);
  // Takes the next piece of a part, to or from `at` in staging.
  void TakePiece(GroupPart& part, uint64_t base, uint64_t& at);
  // Copies between parts and staging, at most what one call takes. True when all of it is queued.
  absl::StatusOr<bool> Stage(Group& group, bool gathers);
  absl::Status CopyPieces(Work& work, std::vector<Work::Staged>& staged);
  // Makes the table of a firing; if there is none, the firing's bytes are copied piece by piece.
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
  // Aborts that came while a gather ran ahead, whose memory must not go meanwhile. When the
  // transport is destroyed, bundles_ answers these transfers with all others, once the stream has
  // gone.
  std::vector<HeldAbort> held_;
  // Kept for their memory.
  std::vector<CopyPiece> pieces_;
  std::vector<Communicator::Operation> operations_;
  bool polled_ = false;                      // the lane has it as a poller
  absl::Time asked_ = absl::InfinitePast();  // when NCCL was last asked for asynchronous errors
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
