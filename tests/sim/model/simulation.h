// SPDX-License-Identifier: Apache-2.0
// Simulates many TransferEngines in one process from one seed: with a virtual clock; a network that
// loses, doubles and reorders; links that break; partitions; daemons and clients that die and come
// back; lanes that are slow, fail, refuse a route or hang. What the engines order is checked as it
// comes. What must hold of a node is checked after each of its steps, and what must hold at the end
// by Run.
//
// A seed also draws which kinds of faults its run has. So in many runs a kind of fault is certain
// to be absent and excuses nothing.
//
// Single-threaded. The same options give the same story, in whatever order hash tables iterate.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/sim/model/host_communicators.h"
#include "transfer/engine.h"
#include "transfer/frame_order.h"

namespace ferry {

struct SimulationOptions {
  uint64_t seed = 1;
  int daemons = 3;
  int steps = 300;  // steps of the clients
  bool verbose = false;
  // Daemons are taken off others' lists of nodes, and put on them again.
  bool removals = false;
  // Keeps what happens, so that Story can tell it.
  bool story = false;
};

// Counts of what a run has done, for people.
struct SimulationCount {
  uint64_t posted = 0, ended_ok = 0, ended_badly = 0;
  uint64_t groups = 0;    // groups that were launched
  uint64_t messages = 0;  // messages that engines have sent
  uint64_t fired = 0;     // firings of prepared pairs that nobody disturbed
  uint64_t refused = 0;   // offers that a full queue has refused
  uint64_t told = 0;      // halves that came after their partner had ended, and were told so
  // Faults: of segments below a link; of links; of daemons.
  uint64_t lost = 0, doubled = 0, reordered = 0, resets = 0, partitions = 0, crashes = 0;
  uint64_t splits = 0;     // partitions of groups of daemons; their links count as partitions
  uint64_t early = 0;      // frames that overtook others by their link's other road
  uint64_t clients = 0;    // clients that died, cancelled or poisoned
  uint64_t launches = 0;   // launches that were made to fail, refuse, hang or be late
  uint64_t evictions = 0;  // evictions of communicators that were asked for
  uint64_t drains = 0;     // drains of daemons that were taken back
  uint64_t removals = 0;   // daemons that another one has taken off its list
  uint64_t deserted = 0;   // halves that ended because the last member was gone
  uint64_t convoys = 0;    // launches of several halves as one
  uint64_t apart = 0;      // offers of several halves that were taken apart
  uint64_t faults() const {
    return lost + doubled + reordered + early + resets + partitions + crashes + clients + launches +
           evictions;
  }
  void Add(const SimulationCount& other);
  std::string ToString() const;
};

class Simulation {
 public:
  explicit Simulation(SimulationOptions options);
  // Runs the simulation. Returns what went wrong; empty if all is well.
  std::vector<std::string> Run();
  const SimulationCount& count() const { return count_; }
  // For a failed run with options.story: what the two nodes of its first failure did and heard.
  std::string Story() const;

 private:
  // What the model knows of one posted half. Every half has an arena of its own, except that the
  // halves of a batch share an arena, numbered as the first half. So the ranges of a launch tell
  // which halves it is about.
  struct HalfModel {
    int node = 0;
    TransferId id;
    TransferSpec spec;
    uint64_t scenario = 0;
    bool defined = false;
    bool watched = false;
    bool ended = false;
    absl::Status status;
    absl::Time posted_at;
    bool linked = false;  // the link to its other end was up when it was posted
    absl::Time ended_at;
    uint32_t attempt = 0;
    bool outstanding = false;
    bool aborted = false;
    LaunchRole role = LaunchRole::kCopy;
    uint64_t tag = 0;
    int copied_by_peer = 0;  // one-sided copies out of it that run now
    uint64_t other = 0;      // index of the half that it was launched with, once known
    int chunks_out = 0;      // chunks in groups that were not answered
    uint64_t cut = 0;        // bytes that were put into groups so far
    uint64_t moved = 0;      // bytes in groups that were answered with OK
    // The following for prepared halves only.
    bool armed = false;         // its launch lasts until it is aborted
    uint64_t armed_losses = 0;  // losses of the link when it was armed
    uint64_t firings = 0;       // firings that are over at this end
    // On nccl: its bundle, which has one transfer here because batches have one
    uint64_t bundle = 0;
    bool told = false;  // its engine was told that this end wants the next firing
    // In a batch: bytes in the arena from the start of one half to the start of the next.
    uint64_t stride = 0;
    uint64_t carried = 1;  // how many halves, from this one on, its outstanding launch carries
    // Of a send: how many halves, from this one on, are one offer at the other end
    uint64_t offered_as = 1;
  };
  // What clients meant with one key: a send, a receive or both. Prepared halves are fired until one
  // end is cancelled at some time; if they have a goal and nobody disturbs them, as often as the
  // goal says.
  struct Scenario {
    uint64_t send = 0;  // index in halves_; 0: none
    uint64_t receive = 0;
    bool mismatch = false;
    bool disturbed =
        false;  // cancelled, poisoned, a client died, or a launch was made to fail or hang
    bool route_may_fail = false;
    bool queue_full = false;  // its offer came when the queue had no place
    bool drained = false;     // one of its nodes drained between its post and its end
    uint64_t goal = 0;        // for prepared halves: how many firings
    absl::Time goal_by;
    bool key_taken = false;                     // a later scenario has the same key
    bool key_again = false;                     // an earlier scenario had the same key
    uint64_t losses = 0;                        // losses of the link when the first half was posted
    std::set<HostCommunicators::Key> attempts;  // attempts that its groups were launched on
  };
  // A session that is the only member of a domain on a device and dies before it has posted
  // anything. It leaves one half at another daemon, that of `scenario`, without its partner.
  struct MemberModel {
    uint64_t scenario = 0;
    int node = 0;
    uint64_t life = 0;                  // incarnation of the node
    std::optional<absl::Time> died_at;  // nothing: its daemon crashed before
  };
  struct Node {
    uint64_t host = 0;
    std::unique_ptr<TransferEngine> engine;  // null while the daemon is down
    uint64_t life = 1;
    std::vector<uint32_t> sessions;
    std::map<uint32_t, uint64_t> sequences;
    size_t open = 0;
    bool pump_pending = false;
    bool drains = false;
    std::set<int> strangers;  // nodes that are off its list now
    absl::Time timer = absl::InfiniteFuture();
  };
  // A link is one ordered stream that delivers each message once, or breaks. This is what gRPC over
  // TCP gives the engines, so they are never told the same thing twice. Loss, doubling and
  // reordering happen to the segments below it. The stream repeats, drops and sorts segments, which
  // the engines see as delay. After a silence it gives up, which they see as a break that swallows
  // the end of each direction.
  struct Stream {  // one direction
    uint64_t next_send = 0;
    uint64_t next_deliver = 0;
    std::map<uint64_t, PeerEvents> window;  // frames that were not delivered, by sequence number
    std::set<uint64_t> arrived;             // sequence numbers of those that have arrived
    absl::Time blocked_until;               // by a partition
  };
  // Daemons of one host have a socket as well, which delays frames but loses none. Each frame goes
  // by either road; FrameOrder puts the two in order.
  enum Road { kStream, kSocket, kRoads };
  struct Direction {
    Stream roads[kRoads];
    uint64_t said = 0;  // number of events
    FrameOrder order;
    uint64_t heard = 0;
  };
  struct Link {
    uint64_t generation = 0;
    uint64_t losses = 0;
    bool connected = false;
    bool connecting = false;
    int unaware = 0;        // ends that have not noticed the last loss yet
    bool up[2] = {};        // the engine at that end was told that the link is up
    uint64_t life[2] = {};  // incarnation of the node at that end, when the link was connected
    Direction to[2];        // the direction towards that end
  };
  struct Rendezvous {  // both halves of one ucx launch
    uint64_t send = 0;
    uint64_t receive = 0;
  };
  struct Profile {  // which faults this run has, in percent
    int wire = 0;
    int partition = 0;
    int crash = 0;
    int evict = 0;
    // Percent of launches of groups, and of openings, that hang, fail or are refused.
    int group_fault = 0;
    int slow_lane = 0;  // percent of the lanes
    int many = 0;       // percent of the posts that are between few devices
    // Percent of the posts between devices of one daemon whose devices are drawn again
    int apart = 0;
  };
  struct Split {  // a group of daemons that the others cannot reach, one way at least
    uint64_t first = 0;
    uint64_t size = 0;
    absl::Time until = absl::InfinitePast();
  };

  // --- Clock and dice.
  uint64_t Random(uint64_t below);
  bool Chance(int percent) { return Random(100) < static_cast<uint64_t>(percent); }
  absl::Duration Delay(int max_ms);
  void At(absl::Time when, std::function<void()> event);
  void After(absl::Duration delay, std::function<void()> event) {
    At(now_ + delay, std::move(event));
  }
  void Say(absl::string_view text);
  void Fail(absl::string_view text);

  // --- Engines (simulation.cc).
  void Start(int node);
  TransferEngine* EngineAt(int node) { return nodes_[node].engine.get(); }
  void Touched(int node);  // the engine was called: take its outbox, now or soon
  void Pump(int node);
  RouteTable RandomRoutes();
  absl::flat_hash_set<GlobalDeviceId> GpusOf(int index) const;

  // --- Network (network.cc).
  Link& LinkOf(int a, int b);
  static int EndOf(int node, int other) { return node < other ? 0 : 1; }
  void Wanted(int node, int peer);
  void Connect(int a, int b);
  void BreakLink(int a, int b);
  void LoseLink(int node, int other, absl::string_view why);
  // A link that may not be connected, and often one of a few; nothing before any was wanted.
  std::optional<std::pair<int, int>> RandomLink();
  void Partition(int a, int b);
  void PartitionGroup();
  void Cut(int a, int b, bool to_a, bool to_b, absl::Time until);
  bool InSplit(int node) const;
  void Carry(int from, int to, std::vector<PeerMessage> messages);
  void Frame(int from, int to, std::vector<PeerMessage> messages);
  void Transmit(int from, int to, Road road, uint64_t sequence, uint64_t generation);
  void Arrive(int from, int to, Road road, uint64_t sequence, uint64_t generation);
  void Deliver(int from, int to);
  void NoteOffer(int from, int to, const Offer& offer);
  void NoteGroup(int from, int to, const Group& group);

  // --- Clients, daemons (clients.cc).
  void ClientStep();
  void FaultStep();
  GlobalDeviceId RandomDevice();
  void PostScenario();
  // Posts a half of the scenario, unless MayPost forbids it; for `linked` see HalfModel.
  void PostHalf(uint64_t scenario, TransferSpec spec, bool define_later);
  bool MayPost(uint64_t scenario, const TransferSpec& spec);
  // Posts pairs that could go as convoys: of one batch at each end, or of batches that are cut
  // differently.
  void PostBatches();
  void PostBatch(std::vector<std::pair<uint64_t, TransferSpec>> batch);
  void Define(uint64_t half);
  Layout RandomLayout(ArenaId arena, uint64_t bytes);
  void CancelSome();
  void CancelPrepared(uint64_t scenario);
  void AwaitGoal(uint64_t scenario);
  bool AtGoal(const HalfModel& half) const;
  void KillSession();
  void TalkNonsense(int node, int peer);
  void Crash(int node);
  void Drain(int node);
  void MemberStep(uint64_t number);
  // What is in flight between the two nodes may end by the drain of `draining`; `other` -1: of all
  // nodes.
  void NoteDrain(int draining, int other);
  void EvictSome();
  // Takes `other` off the list of `node` for a while.
  void Remove(int node, int other);
  int OwnerOf(GlobalDeviceId device) const { return static_cast<int>(device.value() / 2); }

  // --- Lanes (lanes.cc).
  void OnLaunch(int node, const Launch& launch);
  void Answer(uint64_t half, uint32_t attempt, absl::Status status, absl::Duration delay);
  void OnAbort(int node, TransferId id, const absl::Status& why);
  void TryRendezvous(std::pair<int, uint64_t> key);
  void Arm(uint64_t half);
  // The lanes' words fire it once more, if both ends are armed.
  void FireArmed(uint64_t receive, uint32_t attempt);
  void OnFired(int node, const Fired& fired);
  // On nccl: the word of the half's end allows the next firing after a while.
  void WantFiring(uint64_t half, uint32_t attempt);
  void CheckLaunch(const std::string& name, const HalfModel& half, const Launch& launch);
  HalfModel* HalfAt(int node, TransferId id);
  // The layout of `count` halves, from this one on.
  Layout LayoutOf(uint64_t half, uint64_t count) const;
  uint64_t HalfOfArena(const Layout& layout);
  std::string NameOf(const HalfModel& half) const;

  // --- Lanes of groups (group_lanes.cc).
  void OnCommunicatorOpen(int node, const CommunicatorOpen& open);
  void OnGroupLaunch(int node, const GroupLaunch& launch);
  // How many halves, this one first, a chunk of a group carries: more than one if it is a convoy's.
  uint64_t CarriedBy(const HalfModel& half, const GroupChunk& chunk) const;
  // Chunks of `carried` halves of a group are launched. Adds to `parts` the bytes of each half,
  // from what was cut before on. A half of which the chunk has no bytes gets none, though it is
  // launched with the others.
  void PutOut(HalfModel& half, uint64_t carried, const GroupChunk& chunk,
              std::vector<std::pair<uint64_t, uint64_t>>& parts);
  // Checks one half of a chunk of a group, except its place and bytes.
  void CheckInGroup(const std::string& name, const HalfModel& half, const GroupChunk& chunk,
                    const GroupLaunch& launch);
  // Checks what must hold of a chunk of a firing, besides what must hold of all chunks.
  void CheckFiring(const std::string& name, const HalfModel& half, const HalfModel& other,
                   const GroupLaunch& launch);
  void OnCommunicatorClosing(int node, const CommunicatorClosing& closing);
  void OnCommunicatorEnd(int node, const CommunicatorEnd& end);
  HostCommunicators::Key KeyOf(int node, const Clique& clique, uint32_t attempt);
  void StartLane(GlobalDeviceId device);
  void StartCall(HostCommunicators::CallId id);
  void AnswerCall(HostCommunicators::CallId id, absl::Status status, absl::Duration delay);

  // --- Checks (checks.cc).
  void CheckBounds(int node);
  void CheckNode(int node);
  void CheckDrains(int node);
  void OnEnded(int node, const Ended& ended);
  void OnOneEnded(int node, const Ended& ended);
  void CheckEnd();
  void CheckNothingRemembered();
  void CheckTold(const Scenario& scenario);
  void CheckMember(const MemberModel& member);
  // Whether the daemons of both ends of the key have the link up.
  bool Linked(const MatchKey& key);
  void CheckScenario(uint64_t index, const Scenario& scenario);
  bool AttemptFailed(const Scenario& scenario) const;

  const SimulationOptions options_;
  uint64_t random_state_;
  absl::Time now_;
  uint64_t next_event_ = 0;
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> events_;
  Profile profile_;
  Split split_;  // the last one
  DeviceMap map_;
  bool gpus_ = false;
  TransferEngine::Options engine_options_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, Link> links_;
  std::vector<HalfModel> halves_;  // [0] is unused; the index is the number of the arena
  std::vector<Scenario> scenarios_;
  std::vector<MemberModel> members_;
  std::map<std::pair<int, uint64_t>, uint64_t> by_id_;
  std::map<std::pair<int, uint64_t>, uint64_t> by_bundle_;
  std::map<std::pair<int, uint64_t>, Rendezvous> rendezvous_;
  HostCommunicators communicators_;
  // For each call, in the order of its ops: our half, and how many of its bytes.
  std::map<HostCommunicators::CallId, std::vector<std::pair<uint64_t, uint64_t>>> call_halves_;
  std::set<uint64_t> slow_lanes_;
  std::set<HostCommunicators::Key> failed_attempts_;  // as their leaders said
  std::vector<std::string> failures_;
  std::vector<std::string> story_;
  SimulationCount count_;
  uint64_t fault_steps_ = 0;
  uint64_t member_steps_ = 0;
  uint64_t batch_steps_ = 0;
  bool calm_ = false;  // the clients are done: no new faults
};

}  // namespace ferry
