// SPDX-License-Identifier: Apache-2.0
// Drives the pure TransferEngine: gives it posts, messages and time, and carries out what it wants,
// which is launches on lanes, messages to peers, watches of 'defined' words, and endings told to
// sessions. It refuses posts while the daemon drains. Home: control.
//
// AfterTasks carries out everything that the engine wants, once for all tasks that ran before it.
// So many posts become one message to the peer, one task for the lane and one wake-up of the
// client. A long piece of work, such as a batch of a thousand posts, is carried out in parts of
// kPostsAtOnce transfers, so peers and lanes work on one part while control prepares the next.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/profiler_range.h"
#include "daemon/comm_table.h"
#include "daemon/failure_log.h"
#include "daemon/local_devices.h"
#include "daemon/metrics.h"
#include "daemon/post.h"
#include "daemon/session/session_table.h"
#include "daemon/traffic.h"
#include "transfer/engine.h"
#include "transfer/mapped/peer_arena_table.h"

namespace ferry {

class TransferDriver {
 public:
  struct Hooks {
    // Says messages to a peer. `more`: as PeerEvents::more.
    std::function<void(PeerId, std::vector<PeerMessage>, bool more)> send;
    // Asks for a link to the peer.
    std::function<void(PeerId)> want_peer;
    // Asks the peer for an arena, to be mapped by this device. OnPeerArena gets the answer.
    std::function<void(PeerId, ArenaId, GlobalDeviceId)> fetch_arena;
    // OK as long as bytes that were read from the peer's arenas may be believed. Any thread.
    std::function<absl::Status(PeerId)> still_valid;
    // The link page (`ours`: the one that we made, else the peer's) with slots for prepared
    // transfers; null if there is none.
    std::function<std::shared_ptr<LinkPage>(PeerId, bool ours)> page_with_slots;
    // The present incarnation of a daemon, also of this one.
    std::function<Incarnation(PeerId)> incarnation;
    // The most CTAs that a peer has asked for, for the communicators of its GPU; 0: it has not
    // said.
    std::function<int(GlobalDeviceId)> max_ctas;
    // A transfer or a job is over. (JobTable has transfers of its own; this tells it.)
    std::function<void(const Ended&)> over;
  };
  // A copy of at most kInlineBytes in at most kInlineStretches stretches at either end runs on
  // control itself: handing it to the lane would cost more.
  static constexpr uint64_t kInlineBytes = 4096;
  static constexpr size_t kInlineStretches = 16;  // see kInlineBytes
  // How many transfers of a long piece of work control handles before it carries out what they
  // want.
  static constexpr size_t kPostsAtOnce = 128;
  // How many launches whose memory is there now are started before control does something else.
  static constexpr size_t kStartsAtOnce = 512;

  // `control`, `devices` and `sessions` outlive the driver.
  TransferDriver(Executor& control, LocalDevices& devices, SessionTable& sessions, DeviceMap map,
                 TransferEngine::Options options, Hooks hooks, NcclOptions nccl = {});

  // --- From gRPC and attach.sock. Posts a batch of transfers, all or none.
  PostReply Post(Session& session, PostBatch batch);
  // Checks the transfers that a job makes by itself, after the session has admitted them. As
  // TransferEngine::Check, except that sends and receives may be mixed.
  std::vector<TransferEngine::EntryError> CheckOfJobs(absl::Span<const TransferSpec> specs) const;
  // Posts them. They wait until Define says that their turn has come. `posted`: when the job was
  // posted; their deadlines count from then.
  void PostOfJobs(absl::Time posted, TransferId first, std::vector<TransferSpec> specs) {
    home_.Check();
    engine_.Post(posted, SessionOf(first), SequenceOf(first), absl::MakeSpan(specs));
  }
  void Define(TransferId transfer) {
    home_.Check();
    engine_.OnDefined(control_.Now(), transfer);
  }
  // What became of the transfers that Cancel named: asked to end; over before.
  struct CancelCounts {
    uint32_t requested = 0;
    uint32_t over = 0;
  };
  CancelCounts Cancel(Session& session, const std::vector<uint64_t>& sequences,
                      const absl::Status& why);
  // Makes the session a member of `domain` on `device`, which must be ours, under the name that its
  // client gives itself; as TransferEngine::Join. NOT_FOUND/DEVICE_UNKNOWN,
  // INVALID_ARGUMENT/FIELD_INVALID.
  absl::Status Join(Session& session, const std::string& domain, GlobalDeviceId device,
                    const std::string& name);
  // With a time: refuses new posts from now on, and tells peers. Until that time it still takes
  // batches that continue a transfer in flight. Without a time: takes posts again.
  void SetDraining(std::optional<absl::Time> until) {
    home_.Check();
    draining_ = until.has_value();
    draining_until_ = until.value_or(absl::InfinitePast());
    engine_.SetDraining(control_.Now(), until);
  }
  bool draining() const { return draining_; }
  // How many batches it has ever taken while it drained.
  uint64_t continued() const { return continued_; }
  // Asks every transfer that is not launched to end.
  void CancelAll(const absl::Status& why);
  // Asks every transfer without a partner to end, with two exceptions: transfers that continue one
  // in flight, and transfers for which `may_come`, given the partner's device, says that the
  // partner may still come. Returns how many were asked, and how many were left for these two
  // reasons.
  struct Unmatched {
    size_t asked = 0;
    size_t left = 0;
  };
  Unmatched CancelUnmatched(const absl::Status& why,
                            const std::function<bool(GlobalDeviceId)>& may_come);

  // --- From the session table. EndSession: the client is gone. EndPrepared: asks the prepared
  // batch of `transfer` to end.
  void EndSession(SessionId session);
  void EndPrepared(TransferId transfer, const absl::Status& why);

  // --- From the engine, or from the job table: a transfer or job is over. Tells its session at
  // once, then Hooks::over; the client sees it with the next flush.
  void Over(const Ended& ended);

  // --- From a reload: as TransferEngine's.
  PeerId AddPeer(const std::string& name, absl::Span<const GlobalDeviceId> node_devices) {
    home_.Check();
    return engine_.AddPeer(name, node_devices);
  }
  // The peer's link must be lost already.
  void RemovePeer(PeerId peer, const absl::Status& why) {
    home_.Check();
    engine_.RemovePeer(control_.Now(), peer, why);
  }

  // --- From the peer table.
  void OnPeerUp(PeerId peer, RouteTable routes, absl::flat_hash_set<GlobalDeviceId> gpus = {});
  void OnPeerLost(PeerId peer, const absl::Status& why, bool established);
  void OnPeerMessages(PeerId peer, std::vector<PeerMessage> messages, bool more = false);
  // The answer to Hooks::fetch_arena.
  void OnPeerArena(PeerId peer, ArenaId arena,
                   absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping);
  void OnPeerArenaGone(PeerId peer, ArenaId arena);

  // --- From lanes, posted to control.
  void OnResults(std::vector<OpResult> results);
  void OnGroupsOver(std::vector<std::pair<uint64_t, absl::Status>> over);
  void OnFiringWanted(uint64_t bundle) {
    home_.Check();
    engine_.OnFiringWanted(control_.Now(), bundle);
  }
  void OnSmsBusy(GlobalDeviceId device, absl::Time until) {
    home_.Check();
    engine_.OnSmsBusy(control_.Now(), device, until);
  }

  // --- From operators, about communicators: as TransferEngine's and CommTable's. Evict and Abort
  // return the attempt that they act on.
  absl::Status WarmComm(const Clique& clique);
  absl::StatusOr<uint32_t> EvictComm(const Clique& clique);
  absl::StatusOr<uint32_t> AbortComm(const Clique& clique, uint32_t attempt);

  // Ends all communicators and waits for that. Control must have stopped; the lanes must still run.
  void StopComms() {
    home_.Check();
    comms_.Stop();
  }

  // Carries out what the engine wants. Returns when it wants to be called again.
  absl::Time AfterTasks();

  const TransferEngine& engine() const { return engine_; }
  const std::string& NodeName(PeerId peer) const {
    return engine_.devices().node_names[peer.value()];
  }
  void SetBounds(const TransferEngine::Bounds& bounds) {
    home_.Check();
    engine_.SetBounds(bounds);
  }
  const TransferMetrics& metrics() const { return metrics_; }
  // A batch, of transfers or of jobs, was refused.
  void OnRejected(const absl::Status& why) {
    home_.Check();
    metrics_.OnRejected(why);
  }
  Traffic::View LookAtTraffic(size_t oldest = 0) const {
    return traffic_.Look(engine_.view(), sessions_, oldest);
  }
  CommTable& comms() {
    home_.Check();
    return comms_;
  }

 private:
  struct Running {  // a launch that a lane has and has not answered
    LocalDevice* device = nullptr;
    Transport* transport = nullptr;  // of that device
    uint32_t attempt = 0;
    std::vector<const DeviceMemory*> pins;  // arenas of the peer that the launch uses
  };
  // A 'defined' word that a lane shall watch until it is `target`.
  struct LaneWatch {
    TransferId transfer;
    DefinedWord word;
    uint64_t target = 0;
  };
  // A launch that a lane shall abort.
  struct LaneAbort {
    TransferId transfer;
    uint32_t attempt = 0;
    absl::Status why;
    Transport* transport = nullptr;
  };
  // What one transport shall launch.
  struct LaneLaunches {
    Transport* transport = nullptr;
    bool segments = false;  // the ops of a route that is two-sided have segments
    std::vector<TransportOp> ops;
  };
  // Everything that one lane is given in AfterTasks.
  struct LaneWork {
    absl::InlinedVector<LaneLaunches, 2> launches;  // one for each transport
    std::vector<LaneWatch> watches;
    std::vector<TransferId> unwatch;
    std::vector<LaneAbort> aborts;
    bool empty() const {
      return launches.empty() && watches.empty() && unwatch.empty() && aborts.empty();
    }
  };

  // The transfer that the batch continues. None if that transfer is not the session's, or if the
  // batch is prepared.
  static TransferId ContinuedBy(const Session& session, const PostBatch& batch);
  // OK if the device is ours, else DEVICE_UNKNOWN, which names the node that has it.
  absl::Status CheckOwn(GlobalDeviceId device) const;
  // Carries out everything in an outbox.
  void Carry(Outbox outbox);
  // Parts of Carry. What is to be said goes with the next FlushPeers.
  void Address(std::vector<std::pair<PeerId, PeerMessage>> messages);
  void StartWatch(const WordWatch& watch);
  void Abort(TransferId transfer, const absl::Status& why);
  void Obey(GroupOrder&& order);
  // Called after each kPostsAtOnce transfers of something long: carries out what they want of lanes
  // and peers so far. Clients are told, and groups are cut, only at the end.
  void CarryPart();
  CommTable::Hooks CommHooks();
  // Our part of one chunk of a group.
  GroupPart PartOf(bool send, const Layout& layout, uint64_t offset, uint64_t bytes);
  void LaunchGroup(const GroupLaunch& launch);
  // Our part of each chunk of a group.
  std::vector<GroupPart> PartsOf(const GroupLaunch& launch);
  void Start(Launch&& launch);
  // Hands the op to the lane with the next FlushLanes.
  void GiveToLane(const Launch& launch, LocalDevice& runner, Transport* transport, TransportOp op);
  // Copies a small op of host memory on control.
  void CopyInline(const Launch& launch, TransportOp& op);
  // The device whose lane runs the launch. Only a GPU's lane can touch that GPU's memory, so it is
  // the end of ours that is a GPU, if there is one.
  LocalDevice& RunnerOf(const Launch& launch);
  // An arena that a GPU must be shown once before it copies the arena's bytes fast. Memory of a
  // host device is registered, once for all GPUs (`gpu` is null). Memory of another GPU that came
  // by a legacy handle is opened for `gpu`.
  struct Showing {
    std::optional<PeerId> peer;  // the peer whose arena it is; none: ours
    ArenaId arena;
    CudaDevice* gpu = nullptr;
    bool operator==(const Showing&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Showing& shown) {
      return H::combine(std::move(h), shown.peer.has_value(), shown.peer.value_or(PeerId()),
                        shown.arena, shown.gpu);
    }
  };
  // The first arena of the launch that must be shown and was not tried yet.
  std::optional<Showing> NextToShow(const Launch& launch, CudaDevice& gpu) const;
  // True if no arena of the launch must be shown. Else shows the next one and keeps the launch
  // until that was tried.
  bool IsShown(Launch& launch, LocalDevice& runner);
  void RegisterWith(ArenaId arena, CudaDevice& gpu);
  void OpenOn(const Showing& shown);
  void OnShown(const Showing& shown);
  // Starts these launches soon, or, if `status` is not OK, answers them with it.
  void StartSoon(std::vector<Launch> launches, const absl::Status& status);
  void StartSome();
  // Fills in the launch's memory, or ROUTE_UNAVAILABLE. False if a peer's arena must be fetched
  // first.
  absl::StatusOr<bool> Resolve(const Launch& launch, const LocalDevice& runner, TransportOp& op);
  // Pins the peer's arenas that a lane is about to read, until Unpin.
  std::vector<const DeviceMemory*> PinRemote(const Launch& launch);
  // The words that fire an armed launch, or ROUTE_UNAVAILABLE.
  absl::StatusOr<PreparedEnds> ResolveEnds(const Launch& launch);
  PreparedBatch* FindPrepared(TransferId transfer, uint32_t batch);
  // Takes out a launch that waits for its memory, and its attempt; false if there is none.
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
  // Launches that lanes have.
  absl::flat_hash_map<TransferId, Running> running_;
  // The device whose lane that watches a transfer's 'defined' word.
  absl::flat_hash_map<TransferId, LocalDevice*> watching_;
  // Launches that wait for an arena of a peer, by peer and arena.
  absl::flat_hash_map<std::pair<PeerId, ArenaId>, std::vector<Launch>> fetching_;
  // Launches that wait until a GPU was shown an arena. The entry stays until that was tried, even
  // if no launch waits any more.
  absl::flat_hash_map<Showing, std::vector<Launch>> showing_;
  // Launches whose wait for memory is over, with its outcome.
  std::deque<std::pair<Launch, absl::Status>> starting_;
  absl::flat_hash_map<LocalDevice*, LaneWork> lane_work_;
  absl::flat_hash_map<PeerId, std::vector<PeerMessage>> to_peers_;  // collected in AfterTasks
  std::vector<TransferId> settling_;                                // collected in OnGroupsOver
  absl::flat_hash_map<uint64_t, ProfilerRange> group_ranges_;  // by ticket; if a tool is attached
  absl::flat_hash_set<SessionId> touched_;  // sessions with endings since the last flush
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
