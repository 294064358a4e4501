// SPDX-License-Identifier: Apache-2.0
// Drives the pure TransferEngine: gives it posts, messages and time, and carries out what it wants:
// launches on lanes, messages to peers, watches of 'defined' words, endings to sessions. Home:
// control.
//
// Everything the engine wants is carried out in AfterBatch, once for all tasks that ran before it:
// so many posts become one message to the peer, one task for the lane and one wake-up of the
// client. What is long, a batch of a thousand posts, is carried out in parts of kPart: peers and
// lanes are at one while control is at the next.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/executor.h"
#include "daemon/comm_table.h"
#include "daemon/failure_log.h"
#include "daemon/local_devices.h"
#include "daemon/metrics.h"
#include "daemon/post.h"
#include "daemon/session_table.h"
#include "daemon/traffic.h"
#include "transfer/engine.h"
#include "transfer/mapped/peer_arena_table.h"

namespace ferry {

class TransferDriver {
 public:
  struct Hooks {
    // `more`: as PeerEvents'.
    std::function<void(PeerId, std::vector<PeerMessage>, bool more)> send;
    std::function<void(PeerId)> want_peer;
    // Asks the peer for an arena to map by this device; answered by OnPeerArena.
    std::function<void(PeerId, ArenaId, GlobalDeviceId)> fetch_arena;
    // OK while bytes read from the peer's arenas may be believed. Any thread.
    std::function<absl::Status(PeerId)> still_valid;
    // The link's page, ours or the peer's, with slots for prepared transfers; null if there is
    // none.
    std::function<std::shared_ptr<LinkPage>(PeerId, bool ours)> page_with_slots;
    // This life of a daemon, our own among them.
    std::function<Incarnation(PeerId)> incarnation;
    // What a peer has said of a GPU's communicators; 0: nothing.
    std::function<int(GlobalDeviceId)> max_ctas;
    // A transfer or a job is over.
    std::function<void(const Ended&)> over;
  };
  // Copies of at most so many bytes are done on control itself: a hop to the lane costs more.
  static constexpr uint64_t kInlineBytes = 4096;
  static constexpr size_t kInlineRuns = 16;  // and at most so often apart, at either end
  // What control does between carrying out what that wanted, of what is long.
  static constexpr size_t kPart = 128;
  // Launches whose memory has come that are started before control does something else.
  static constexpr size_t kStartsAtOnce = 512;

  TransferDriver(Executor& control, LocalDevices& devices, SessionTable& sessions, DeviceMap map,
                 TransferEngine::Options options, Hooks hooks, NcclOptions nccl = {});

  // --- From gRPC and attach.sock.
  PostReply Post(Session& session, PostBatch batch);
  // Of transfers that are parts of jobs, whose session has admitted them: as the engine's, but that
  // sends are among receives. They wait until Define says that it is their turn.
  std::vector<TransferEngine::EntryError> CheckOfJobs(absl::Span<const TransferSpec> specs) const;
  // `posted`: when the job was, whose deadline they have.
  void PostOfJobs(absl::Time posted, TransferId first, std::vector<TransferSpec> specs) {
    engine_.Post(posted, SessionOf(first), SequenceOf(first), absl::MakeSpan(specs));
  }
  void Define(TransferId transfer) { engine_.OnDefined(control_.Now(), transfer); }
  struct CancelCounts {
    uint32_t requested = 0;
    uint32_t over = 0;
  };
  CancelCounts Cancel(Session& session, const std::vector<uint64_t>& sequences,
                      const absl::Status& why);
  // The session is a member of the domain, by its client's name for it, on our device: as
  // TransferEngine's. NOT_FOUND/DEVICE_UNKNOWN, INVALID_ARGUMENT/FIELD_INVALID.
  absl::Status Join(Session& session, const std::string& domain, GlobalDeviceId device,
                    const std::string& name);
  // Refuses new posts, or takes them again; peers are told. As TransferEngine's. What continues
  // something that is in flight is taken until then.
  void SetDraining(std::optional<absl::Time> until) {
    draining_ = until.has_value();
    draining_until_ = until.value_or(absl::InfinitePast());
    engine_.SetDraining(control_.Now(), until);
  }
  bool draining() const { return draining_; }
  // Batches that were taken while it drained, ever.
  uint64_t continued() const { return continued_; }
  // Asks everything that is not launched to end.
  void CancelAll(const absl::Status& why);
  // Asks what has no partner to end, unless it continues something that is in flight, or `may_come`
  // says of the other device that one may still come from there. How many were asked, and how many
  // were left.
  struct Unmatched {
    size_t asked = 0;
    size_t left = 0;
  };
  Unmatched CancelUnmatched(const absl::Status& why,
                            const std::function<bool(GlobalDeviceId)>& may_come);

  // --- From the session table.
  void EndSession(SessionId session);
  void EndPrepared(TransferId transfer, const absl::Status& why);

  // --- Of a transfer, or from the job table: the session hears of an ending, whoever waits for it
  // too, and the client with the next flush.
  void Over(const Ended& ended);

  // --- From a reload; as TransferEngine's.
  PeerId AddPeer(const std::string& name, absl::Span<const GlobalDeviceId> node_devices) {
    return engine_.AddPeer(name, node_devices);
  }
  // Its link is lost already.
  void RemovePeer(PeerId peer, const absl::Status& why) {
    engine_.RemovePeer(control_.Now(), peer, why);
  }

  // --- From the peer table.
  void OnPeerUp(PeerId peer, RouteTable routes, PeerFeatures features = {},
                absl::flat_hash_set<GlobalDeviceId> gpus = {});
  void OnPeerLost(PeerId peer, const absl::Status& why, bool established);
  void OnPeerMessages(PeerId peer, std::vector<PeerMessage> messages, bool more = false);
  // The answer to fetch_arena.
  void OnPeerArena(PeerId peer, ArenaId arena,
                   absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping);
  void OnPeerArenaGone(PeerId peer, ArenaId arena);

  // --- From lanes (posted).
  void OnResults(std::vector<OpResult> results);
  void OnGroupsOver(std::vector<std::pair<uint64_t, absl::Status>> over);
  void OnFiringWanted(uint64_t bundle) { engine_.OnFiringWanted(control_.Now(), bundle); }
  void OnSmsBusy(GlobalDeviceId device, absl::Time until) {
    engine_.OnSmsBusy(control_.Now(), device, until);
  }

  // --- From operators, of communicators. As TransferEngine's and CommTable's; the attempt
  // concerned.
  absl::Status WarmComm(const Clique& clique);
  absl::StatusOr<uint32_t> EvictComm(const Clique& clique);
  absl::StatusOr<uint32_t> AbortComm(const Clique& clique, uint32_t attempt);

  // Ends all communicators. Control has stopped; the lanes have not.
  void StopComms() { comms_.Stop(); }

  // Carries out what the engine wants; when it wants to be called again.
  absl::Time AfterBatch();

  const TransferEngine& engine() const { return engine_; }
  const std::string& NodeName(PeerId peer) const {
    return engine_.devices().node_names[peer.value()];
  }
  void SetBounds(const TransferEngine::Bounds& bounds) { engine_.SetBounds(bounds); }
  const TransferMetrics& metrics() const { return metrics_; }
  Traffic::View LookAtTraffic(size_t oldest = 0) const {
    return traffic_.Look(engine_, sessions_, oldest);
  }
  CommTable& comms() { return comms_; }

 private:
  // Who runs a launch on its lane; kBundle: NcclTransport, what is armed there.
  enum Way : uint8_t { kCopy, kArmed, kTcp, kUcx, kBundle };
  static constexpr size_t kWays = 5;
  struct Running {  // a launch that a lane has
    LocalDevice* device = nullptr;
    Way way = kCopy;
    uint32_t attempt = 0;
    std::vector<const DeviceMemory*> pins;  // of the peer's arenas
  };
  struct LaneWatch {
    TransferId transfer;
    DefinedWord word;
    uint64_t target = 0;
  };
  struct LaneAbort {
    TransferId transfer;
    uint32_t attempt = 0;
    absl::Status why;
    Way way = kCopy;
  };
  struct LaneWork {
    std::array<std::vector<TransportOp>, kWays> ops;  // by Way; none of kBundle
    std::vector<BundleHalf> bundled;
    std::vector<LaneWatch> watches;
    std::vector<TransferId> unwatch;
    std::vector<LaneAbort> aborts;
    bool empty() const {
      return bundled.empty() && watches.empty() && unwatch.empty() && aborts.empty() &&
             std::all_of(ops.begin(), ops.end(), [](const auto& of_way) { return of_way.empty(); });
    }
  };
  // Null if the device has none.
  static Transport* TransportOf(const LocalDevice& device, Way way);

  // What a batch continues; none if that is not of its session, or the batch is prepared.
  static TransferId ContinuedBy(const Session& session, const PostBatch& batch);
  // OK, or DEVICE_UNKNOWN with the node that has it.
  absl::Status CheckOwn(GlobalDeviceId device) const;
  void Carry(Outbox outbox);
  // Parts of Carry. What is to be said goes with the next FlushPeers.
  void Address(std::vector<std::pair<PeerId, PeerMessage>> messages);
  void StartWatch(const Watch& watch);
  void Abort(TransferId transfer, const absl::Status& why);
  void Obey(GroupOrder&& order);
  // After every kPart of something long: what it wanted of lanes and peers so far is carried out.
  // Clients hear of it at the end, and groups are cut then.
  void CarryPart();
  CommTable::Hooks CommHooks();
  GroupPart PartOf(bool send, const Layout& layout, uint64_t offset, uint64_t bytes);
  void LaunchGroup(const GroupLaunch& launch);
  // Our part of each chunk of a group.
  std::vector<GroupPart> PartsOf(const GroupLaunch& launch);
  void ArmInBundle(const Launch& launch);
  void Start(Launch&& launch);
  // Whose lane runs it: ours that is a GPU, if either end is, for only those can touch its memory.
  LocalDevice& RunnerOf(const Launch& launch);
  // An arena that a GPU has to be shown before it copies the arena's bytes fast. The memory of a
  // host device is registered, once for all GPUs: `gpu` is null. Memory that came by a legacy
  // handle to another GPU is opened for `gpu` too.
  struct Showing {
    std::optional<PeerId> peer;  // whose arena it is; none: ours
    ArenaId arena;
    CudaDevice* gpu = nullptr;
    bool operator==(const Showing&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Showing& shown) {
      return H::combine(std::move(h), shown.peer.has_value(), shown.peer.value_or(PeerId()),
                        shown.arena, shown.gpu);
    }
  };
  // The first such arena of the launch that nobody has tried yet.
  std::optional<Showing> NextToShow(const Launch& launch, CudaDevice& gpu) const;
  // False, and the launch is kept until it was tried, if there is one.
  bool IsShown(Launch& launch, LocalDevice& runner);
  void PinOn(ArenaId arena, CudaDevice& gpu);
  void OpenOn(const Showing& shown);
  void OnShown(const Showing& shown);
  // Those that waited for memory are started soon, or answered with `status`.
  void StartSoon(std::vector<Launch> launches, const absl::Status& status);
  void StartSome();
  // The launch's memory, or ROUTE_UNAVAILABLE; false if a peer's arena must be fetched first.
  absl::StatusOr<bool> Resolve(const Launch& launch, const LocalDevice& runner, TransportOp& op);
  // The peer's arenas that a lane is about to read, until Unpin.
  std::vector<const DeviceMemory*> PinRemote(const Launch& launch);
  // What fires an armed launch, or ROUTE_UNAVAILABLE.
  absl::StatusOr<PreparedEnds> ResolveEnds(const Launch& launch);
  PreparedBatch* FindPrepared(TransferId transfer, uint32_t batch);
  // Takes out a launch that waits for its memory; false if none does.
  bool StopFetching(TransferId transfer, uint32_t* attempt);
  void Unpin(const std::vector<const DeviceMemory*>& pins);
  void OnEnded(const Ended& ended);
  static void SayFailed(const std::optional<FailureLog::Line>& line);
  void DropMapping(std::unique_ptr<DeviceMemory> mapping);
  void FlushLanes();
  void FlushPeers(bool more);
  void FlushSessions(absl::Time now);

  Executor& control_;
  LocalDevices& devices_;
  SessionTable& sessions_;
  const Hooks hooks_;
  TransferEngine engine_;
  CommTable comms_;
  TransferMetrics metrics_;
  Traffic traffic_;
  FailureLog failures_;
  PeerArenaTable peer_arenas_;
  bool draining_ = false;
  absl::Time draining_until_ = absl::InfinitePast();
  uint64_t continued_ = 0;
  absl::flat_hash_map<TransferId, Running> running_;
  absl::flat_hash_map<TransferId, LocalDevice*> watching_;
  // Launches that wait for a peer's arena, by peer and arena.
  absl::flat_hash_map<std::pair<PeerId, ArenaId>, std::vector<Launch>> fetching_;
  // Launches that wait until a GPU was shown an arena. An entry is there while that is under way,
  // also if nobody waits any more.
  absl::flat_hash_map<Showing, std::vector<Launch>> showing_;
  // Whose wait is over, with how.
  std::deque<std::pair<Launch, absl::Status>> starting_;
  absl::flat_hash_map<LocalDevice*, LaneWork> lane_work_;
  absl::flat_hash_map<PeerId, std::vector<PeerMessage>> to_peers_;  // in AfterBatch
  std::vector<TransferId> settling_;                                // in OnGroupsOver
  absl::flat_hash_set<SessionId> touched_;  // sessions with endings since the last flush
};

}  // namespace ferry
