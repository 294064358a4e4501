// SPDX-License-Identifier: Apache-2.0
// What clients do: mostly pairs that fit, some that do not, some halves that nobody answers, data
// defined late or never, cancels, poison, deaths. Also peers that talk nonsense.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/sim/model/simulation.h"

namespace ferry {

void Simulation::ClientStep() {
  const uint64_t batch_pause = options_.seed % 8 == 1 ? 3 : 9;
  if (options_.seed % 4 == 1 && ++batch_steps_ % batch_pause == 0) return PostBatches();
  const uint64_t dice = Random(100);
  if (dice < 80) {
    PostScenario();
  } else if (dice < 94) {
    CancelSome();
  } else if (dice < 97) {
    KillSession();
  } else {
    const int a = static_cast<int>(Random(options_.daemons));
    const int b = static_cast<int>((a + 1 + Random(options_.daemons - 1)) % options_.daemons);
    if (EngineAt(a) == nullptr) return;
    if (dice == 97 && LinkOf(a, b).up[EndOf(a, b)]) {
      EngineAt(a)->OnPeerRoutes(PeerId(b), RandomRoutes());
    } else {
      TalkNonsense(a, b);
    }
  }
}

void Simulation::FaultStep() {
  if (const auto link = RandomLink()) {
    const auto [a, b] = *link;
    if (Chance(2)) BreakLink(a, b);
    if (Chance(profile_.partition)) Chance(60) ? Partition(a, b) : PartitionGroup();
  }
  if (Chance(profile_.crash)) Crash(OwnerOf(RandomDevice()));
  if (Chance(profile_.evict)) EvictSome();
  if (options_.removals && Chance(2)) {
    const int node = OwnerOf(RandomDevice()), other = OwnerOf(RandomDevice());
    if (node != other) Remove(node, other);
  }
  // By other dice than the seed's, whose stories stay what they are.
  constexpr uint64_t kPause = 37;
  if (options_.seed % 3 == 0 && ++fault_steps_ % kPause == 0) {
    Drain(static_cast<int>(fault_steps_ / kPause % options_.daemons));
  }
  constexpr uint64_t kMemberPause = 11;
  if (options_.seed % 5 == 2 && ++member_steps_ % kMemberPause == 0) {
    MemberStep(member_steps_ / kMemberPause);
  }
}

void Simulation::MemberStep(uint64_t number) {
  const int node = static_cast<int>(number % options_.daemons);
  const int other =
      static_cast<int>((node + 1 + number % (options_.daemons - 1)) % options_.daemons);
  if (EngineAt(node) == nullptr) return;
  const SessionId session(100'000 + number);
  const GlobalDeviceId device(2 * static_cast<uint64_t>(node));
  const std::string domain = absl::StrCat("members-", number);
  Say(absl::StrCat("node-", node, ": ", session.ToString(), " joins ", domain));
  if (!EngineAt(node)->Join(now_, session, domain, device, "member").ok()) Fail("cannot join");
  Touched(node);

  const uint64_t scenario = scenarios_.size();
  scenarios_.emplace_back();
  scenarios_.back().losses = LinkOf(node, other).losses;
  if (LinkOf(node, other).unaware > 0) scenarios_.back().disturbed = true;
  const size_t member = members_.size();
  members_.push_back({scenario, node, nodes_[node].life, std::nullopt});
  TransferSpec spec;
  spec.side = number % 2 == 0 ? Side::kSend : Side::kReceive;
  spec.key = {domain, device, GlobalDeviceId(2 * static_cast<uint64_t>(other)), "of nobody"};
  if (spec.side == Side::kSend) std::swap(spec.key.source, spec.key.destination);
  spec.deadline = now_ + absl::Seconds(30);
  // Before the member dies, or when it has died.
  After(absl::Milliseconds(number % 3 == 0 ? 40 : 5),
        [this, scenario, spec] { PostHalf(scenario, spec, /*define_later=*/false); });
  After(absl::Milliseconds(20), [this, node, session, member, life = nodes_[node].life] {
    if (nodes_[node].life != life || EngineAt(node) == nullptr) return;
    Say(absl::StrCat("node-", node, ": ", session.ToString(), " dies, a member"));
    members_[member].died_at = now_;
    EngineAt(node)->EndSession(now_, session, "killed");
    Touched(node);
  });
}

// Often one of the first few, so that lanes meet in rings also among many daemons.
GlobalDeviceId Simulation::RandomDevice() {
  const uint64_t devices = 2 * options_.daemons;
  return GlobalDeviceId(Random(Chance(profile_.many) ? std::min<uint64_t>(devices, 10) : devices));
}

void Simulation::TalkNonsense(int node, int peer) {
  const uint64_t before = EngineAt(node)->view().ignored_messages();
  const TransferId nobody(~uint64_t{0} - Random(10));
  // As of a leader, but with a device that is not its own; and as of a follower, of no group.
  const Clique clique{GlobalDeviceId(2 * node), GlobalDeviceId(2 * node + 1)};
  PeerMessage nonsense[] = {Matched{nobody},
                            Ready{nobody},
                            Go{nobody, 1, Route::kUcx, 7},
                            Done{nobody},
                            Withdraw{nobody},
                            SendFailed{nobody, 1, {}},
                            HandOver{nobody},
                            TakeBack{nobody},
                            Group{clique, 1, 1, {Chunk{}}},
                            Granted{clique, 1, ~uint64_t{0}, {}},
                            GroupFailed{clique, 1, 1, absl::AbortedError("nonsense")},
                            AttemptOver{clique, 1, 1, {}},
                            Evict{clique, 1},
                            OpenComm{clique, 1, "id"},
                            WarmComm{clique},
                            Fire{clique, {true, nobody, 1}},
                            Seek{nobody, {}},
                            Sought{nobody, {}},
                            ferry::Split{nobody},
                            Apart{nobody}};
  EngineAt(node)->OnMessage(now_, PeerId(peer), std::move(nonsense[Random(std::size(nonsense))]));
  if (EngineAt(node)->view().ignored_messages() != before + 1) {
    Fail(absl::StrCat("node-", node, ": nonsense was not ignored"));
  }
}

void Simulation::PostScenario() {
  TransferSpec spec;
  spec.key = {"sim", RandomDevice(), RandomDevice(), absl::StrCat("key-", scenarios_.size())};
  while (OwnerOf(spec.key.destination) == OwnerOf(spec.key.source) && Chance(profile_.apart)) {
    spec.key.destination = RandomDevice();
  }
  // Sometimes the key of a pair that is over; only once, or scenarios would meet each other's
  // halves.
  bool again = false;
  if (!scenarios_.empty() && Chance(40)) {
    Scenario& old = scenarios_[Random(scenarios_.size())];
    if (!old.disturbed && !old.key_taken && old.send != 0 && old.receive != 0 &&
        halves_[old.send].ended && halves_[old.receive].ended && halves_[old.send].status.ok()) {
      old.key_taken = again = true;
      spec.key = halves_[old.send].spec.key;
    }
  }
  const int source = OwnerOf(spec.key.source);
  const int destination = OwnerOf(spec.key.destination);
  const uint64_t index = scenarios_.size();
  scenarios_.emplace_back();
  Scenario& scenario = scenarios_.back();
  scenario.key_again = again;
  if (source != destination) {
    scenario.losses = LinkOf(source, destination).losses;
    if (LinkOf(source, destination).unaware > 0) scenario.disturbed = true;
  }
  const uint64_t sizes[] = {0, 1, 4096, 30'000, 100'000, 1'000'000};
  spec.bytes = sizes[Random(6)];
  spec.priority = static_cast<int32_t>(Random(3));
  spec.uid = static_cast<uint32_t>(index % 3);
  spec.data_type = Chance(50) ? DataType::kU8 : DataType::kUnspecified;
  if (Chance(50)) spec.shape = {true, {static_cast<int64_t>(spec.bytes)}};
  TransferSpec send = spec;
  TransferSpec receive = spec;
  send.side = Side::kSend;
  receive.side = Side::kReceive;
  if (Chance(8)) {
    scenario.mismatch = true;
    send.bytes += 7;
  } else if (Chance(5) && spec.data_type != DataType::kUnspecified) {
    scenario.mismatch = true;
    receive.data_type = DataType::kS8;
  } else if (Chance(5) && spec.shape.given) {
    scenario.mismatch = true;
    receive.shape.dims.push_back(1);
  }
  if (source != destination) {
    const Route routes[] = {Route::kUcx, Route::kMapped, Route::kNccl, Route::kTcp};
    if (Chance(8)) send.route = routes[Random(4)];
    if (Chance(8)) receive.route = routes[Random(4)];
  } else if (Chance(10)) {
    send.route = Route::kLocal;
  }
  const bool prepared = Chance(15);
  if (prepared) {
    send.prepared = !Chance(5);
    receive.prepared = !Chance(5);
    scenario.mismatch = scenario.mismatch || send.prepared != receive.prepared;
    // When both are posted, if they ever are.
    const absl::Duration posted = absl::Milliseconds(31);
    if (Chance(50)) {
      scenario.disturbed = true;
      After(posted + Delay(400), [this, index] { CancelPrepared(index); });
    } else {
      scenario.goal = 1 + Random(8);
      scenario.goal_by = now_ + absl::Seconds(20);  // armed by its deadline, if at all
      After(posted, [this, index] { AwaitGoal(index); });
    }
  }
  const int what = static_cast<int>(Random(14));  // 0: no send, 1: no receive
  for (TransferSpec* half : {&send, &receive}) {
    if (what == (half == &send ? 0 : 1)) continue;
    const bool late = Chance(25) && !prepared;
    After(Delay(30), [this, index, spec = std::move(*half), late] { PostHalf(index, spec, late); });
  }
}

Layout Simulation::RandomLayout(ArenaId arena, uint64_t bytes) {
  const uint64_t block = 1 + Random(1000);
  if (bytes % block == 0 && Chance(50)) {
    return *Layout::Strided(arena, Random(100), block, block + Random(2), bytes / block);
  }
  if (bytes % block == 0) {
    std::vector<uint64_t> indices(bytes / block);
    for (uint64_t& index : indices) index = Random(1000);
    return *Layout::BlockTable(arena, Random(100), block, std::move(indices));
  }
  std::vector<Range> ranges;
  uint64_t left = bytes;
  for (uint64_t pieces = 1 + Random(3); pieces > 1; --pieces) {
    const uint64_t length = left == 0 ? 0 : Random(left);
    ranges.push_back({arena, bytes - left, length});
    left -= length;
  }
  ranges.push_back({arena, bytes - left, left});
  return Layout(std::move(ranges));
}

bool Simulation::MayPost(uint64_t scenario, const TransferSpec& spec) {
  const int owner = OwnerOf(spec.side == Side::kSend ? spec.key.source : spec.key.destination);
  const Node& node = nodes_[owner];
  if (node.engine == nullptr) {  // its client has nobody to post to
    scenarios_[scenario].disturbed = true;
    return false;
  }
  for (const GlobalDeviceId device : {spec.key.source, spec.key.destination}) {
    const int at = OwnerOf(device);  // who may not have heard yet that it serves again
    if (nodes_[at].drains || node.engine->view().DrainsUntil(PeerId(at)).has_value()) {
      scenarios_[scenario].disturbed = scenarios_[scenario].drained = true;
    }
  }
  return !node.drains;  // it takes none
}

void Simulation::PostHalf(uint64_t scenario, TransferSpec spec, bool define_later) {
  if (!MayPost(scenario, spec)) return;
  const int owner = OwnerOf(spec.side == Side::kSend ? spec.key.source : spec.key.destination);
  Node& node = nodes_[owner];
  const uint64_t index = halves_.size();
  spec.layout = RandomLayout(ArenaId(index), spec.bytes);
  if (spec.deadline == absl::InfiniteFuture()) {
    spec.deadline = now_ + (Chance(70) ? absl::Seconds(10) : absl::Milliseconds(20) + Delay(130));
  }
  spec.defined = !define_later;
  spec.defined_timeline = 1;
  spec.defined_value = index;
  if (!node.engine->Check({&spec, 1}).empty()) {  // an old key that is in use again
    scenarios_[scenario].disturbed = true;
    return;
  }
  HalfModel half;
  half.node = owner;
  const uint32_t session = node.sessions[Random(node.sessions.size())];
  const uint64_t sequence = node.sequences[session]++;
  half.id = MakeTransferId(SessionId(session), sequence);
  half.spec = spec;
  half.scenario = scenario;
  half.defined = spec.defined;
  half.posted_at = now_;
  half.linked = Linked(spec.key);
  halves_.push_back(half);
  by_id_[{owner, half.id.value()}] = index;
  (spec.side == Side::kSend ? scenarios_[scenario].send : scenarios_[scenario].receive) = index;
  ++node.open;
  ++count_.posted;
  Say(absl::StrCat("post ", NameOf(half), define_later ? ", defined later" : ""));
  node.engine->Post(now_, SessionId(session), sequence, {&spec, 1});
  Touched(owner);
  if (define_later && !Chance(15)) After(Delay(80), [this, index] { Define(index); });
}

void Simulation::Define(uint64_t index) {
  HalfModel& half = halves_[index];
  half.defined = true;
  if (!half.watched) return;
  half.watched = false;
  Say(absl::StrCat("defined ", NameOf(half)));
  nodes_[half.node].engine->OnDefined(now_, half.id);
  Touched(half.node);
}

void Simulation::CancelSome() {
  if (halves_.size() < 2) return;
  for (int tries = 0; tries < 20; ++tries) {
    // The young ones have more of their life before them.
    const uint64_t among = std::min<uint64_t>(halves_.size() - 1, 40);
    const HalfModel& half = halves_[halves_.size() - 1 - Random(among)];
    if (half.ended) continue;
    ++count_.clients;
    scenarios_[half.scenario].disturbed = true;
    const bool poison = Chance(50);
    Say(absl::StrCat(poison ? "poison " : "cancel ", NameOf(half)));
    nodes_[half.node].engine->Cancel(
        now_, half.id,
        poison ? Error(absl::StatusCode::kAborted, Reason::kPoisoned, "the kernel failed")
               : Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled"));
    Touched(half.node);
    return;
  }
}

void Simulation::CancelPrepared(uint64_t index) {
  const Scenario& scenario = scenarios_[index];
  const uint64_t which = Chance(50) ? scenario.send : scenario.receive;
  for (const uint64_t i : {which, scenario.send, scenario.receive}) {
    const HalfModel& half = halves_[i];
    if (i == 0 || half.ended) continue;
    ++count_.clients;
    Say(absl::StrCat("cancel prepared ", NameOf(half)));
    nodes_[half.node].engine->Cancel(
        now_, half.id, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "released"));
    return Touched(half.node);
  }
}

bool Simulation::AtGoal(const HalfModel& half) const {
  const Scenario& scenario = scenarios_[half.scenario];
  return half.spec.prepared && scenario.goal > 0 && half.firings >= scenario.goal;
}

// The clients release a pair that was fired as often as they wanted; or give it up.
void Simulation::AwaitGoal(uint64_t index) {
  const Scenario& scenario = scenarios_[index];
  const HalfModel& send = halves_[scenario.send];
  const HalfModel& receive = halves_[scenario.receive];
  const bool both = scenario.send != 0 && scenario.receive != 0;
  const bool reached = both && AtGoal(send) && AtGoal(receive);
  if (reached && !scenario.disturbed) count_.fired += scenario.goal;
  if (reached || scenario.disturbed) return CancelPrepared(index);
  if (send.ended || receive.ended || (scenario.send == 0 && scenario.receive == 0)) return;
  if (now_ > scenario.goal_by) {
    const HalfModel& any = scenario.send != 0 ? send : receive;
    return Fail(absl::StrCat("scenario ", index, ", in which nothing went wrong, was fired ",
                             send.firings, " and ", receive.firings, " times at its ends, not ",
                             scenario.goal, ": ", NameOf(any)));
  }
  After(Delay(40), [this, index] { AwaitGoal(index); });
}

void Simulation::KillSession() {
  const int index = OwnerOf(RandomDevice());
  Node& node = nodes_[index];
  if (node.engine == nullptr) return;
  ++count_.clients;
  uint32_t& session = node.sessions[Random(node.sessions.size())];
  Say(absl::StrCat("node-", index, ": session ", session, " dies"));
  for (const HalfModel& half : halves_) {
    if (!half.ended && half.node == index && SessionOf(half.id) == SessionId(session)) {
      scenarios_[half.scenario].disturbed = true;
    }
  }
  node.engine->EndSession(now_, SessionId(session), "killed");
  session += 2;
  Touched(index);
}

// The daemon is gone with all it knew. Its own clients are told by their library; its peers see
// their links break, and a new life of it knows nobody.
void Simulation::Crash(int index) {
  Node& node = nodes_[index];
  if (node.engine == nullptr) return;
  Say(absl::StrCat("node-", index, " crashes"));
  ++count_.crashes;
  node.engine = nullptr;
  ++node.life;
  node.pump_pending = false;
  node.drains = false;
  node.timer = absl::InfiniteFuture();
  communicators_.Crash(index);
  for (auto& [ends, link] : links_) {
    if (ends.first != index && ends.second != index) continue;
    const int other = ends.first == index ? ends.second : ends.first;
    if (link.up[EndOf(index, other)]) link.up[EndOf(index, other)] = false;
    BreakLink(index, other);
    link.unaware = link.up[EndOf(other, index)] ? 1 : 0;
  }
  for (uint64_t i = 1; i < halves_.size(); ++i) {
    HalfModel& half = halves_[i];
    if (half.node != index) continue;
    by_id_.erase({index, half.id.value()});
    if (half.ended) continue;
    scenarios_[half.scenario].disturbed = true;
    if (half.outstanding && half.role == LaunchRole::kCopy) --halves_[half.other].copied_by_peer;
    half.outstanding = half.watched = half.armed = false;
    half.chunks_out = 0;
    half.ended = true;
    half.ended_at = now_;
    half.status = Error(absl::StatusCode::kUnavailable, Reason::kDaemonLost, "the daemon is gone");
  }
  node.open = 0;
  After(Delay(200), [this, index] {
    Say(absl::StrCat("node-", index, " starts again"));
    Start(index);
  });
}

// As a reload does. Who is a stranger now is told why, and goes on trying.
void Simulation::Remove(int index, int other) {
  Node& node = nodes_[index];
  if (node.engine == nullptr || !node.strangers.insert(other).second) return;
  ++count_.removals;
  Say(absl::StrCat("node-", index, " has no node-", other, " on its list any more"));
  Link& link = LinkOf(index, other);
  if (link.connected) link.up[EndOf(index, other)] = false;  // else it hears of that loss later
  node.engine->RemovePeer(now_, PeerId(other), absl::UnavailableError("it was taken off the list"));
  BreakLink(index, other);
  ++link.losses;  // also of what waits for a link
  Pump(index);
  After(Delay(300), [this, index, other, life = node.life] {
    if (nodes_[index].life != life) return;  // whose list is whole
    Say(absl::StrCat("node-", index, " has node-", other, " on its list again"));
    nodes_[index].strangers.erase(other);
    const PeerId id = nodes_[index].engine->AddPeer(
        map_.node_names[other], {GlobalDeviceId(2 * other), GlobalDeviceId(2 * other + 1)});
    if (id != PeerId(other)) Fail(absl::StrCat("node-", other, " has another id"));
  });
}

// As a daemon does: peers are told, what has no partner ends. It is taken back after a while.
void Simulation::Drain(int index) {
  Node& node = nodes_[index];
  if (node.engine == nullptr || node.drains) return;
  ++count_.drains;
  Say(absl::StrCat("node-", index, " drains"));
  node.drains = true;
  NoteDrain(index, -1);
  node.engine->SetDraining(now_, now_ + absl::Seconds(1));
  Touched(index);
  After(absl::Milliseconds(10), [this, index, life = node.life] {
    if (nodes_[index].life != life) return;
    const absl::Status why =
        Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the other half has not come");
    TransferEngine& engine = *nodes_[index].engine;
    for (const TransferRow& row : engine.view().List(engine.view().in_flight())) {
      const absl::string_view state = row.state;
      if (state == "waiting" || state == "offered") engine.Cancel(now_, row.transfer, why);
    }
    Touched(index);
  });
  After(absl::Milliseconds(60), [this, index, life = node.life] {
    if (nodes_[index].life != life) return;
    Say(absl::StrCat("node-", index, " serves again"));
    nodes_[index].drains = false;
    nodes_[index].engine->SetDraining(now_, std::nullopt);
    Touched(index);
  });
}

void Simulation::NoteDrain(int draining, int other) {
  for (size_t i = 1; i < halves_.size(); ++i) {
    const HalfModel& half = halves_[i];
    const std::set<int> ends = {OwnerOf(half.spec.key.source), OwnerOf(half.spec.key.destination)};
    if (half.ended || !ends.contains(draining) || (other >= 0 && !ends.contains(other))) continue;
    scenarios_[half.scenario].disturbed = scenarios_[half.scenario].drained = true;
  }
}

// The cache is full: everything of this node that idles shall go, and some of what does not.
void Simulation::EvictSome() {
  const int index = OwnerOf(RandomDevice());
  if (EngineAt(index) == nullptr) return;
  for (const Clique& clique : communicators_.OpenAt(index)) {
    ++count_.evictions;
    EngineAt(index)->EvictCommunicator(now_, clique, /*busy=*/Chance(40));
    if (Chance(20)) (void)EngineAt(index)->WarmCommunicator(now_, clique);  // may be refused
  }
  Touched(index);
}

}  // namespace ferry
