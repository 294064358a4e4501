// SPDX-License-Identifier: Apache-2.0
// What clients do: mostly pairs that fit, some that do not, some halves that nobody answers, data
// defined late or never, cancels, poison, deaths. Also peers that talk nonsense.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "simulation.h"

namespace ferry {

void Simulation::ClientStep() {
  const uint64_t dice = Random(100);
  const int a = static_cast<int>(Random(options_.engines));
  const int b = static_cast<int>((a + 1 + Random(options_.engines - 1)) % options_.engines);
  if (dice < 72) {
    PostScenario();
  } else if (dice < 84) {
    CancelSome();
  } else if (dice < 90) {
    if (!calm_) BreakLink(a, b);
  } else if (dice < 92) {
    KillSession();
  } else if (dice < 95) {
    if (LinkOf(a, b).ends[EndOf(a, b)].up)
      nodes_[a].engine->OnPeerRoutes(PeerId(b), RandomRoutes());
  } else {
    const uint64_t before = nodes_[a].engine->ignored_messages();
    const TransferId nobody(~uint64_t{0} - Random(10));
    PeerMessage nonsense[] = {Matched{nobody}, Ready{nobody},    Go{nobody, 1, Route::kUcx, 7},
                              Done{nobody},    Withdraw{nobody}, SendFailed{nobody, 1, {}}};
    nodes_[a].engine->OnMessage(now_, PeerId(b), std::move(nonsense[Random(6)]));
    if (nodes_[a].engine->ignored_messages() != before + 1) Fail("nonsense was not ignored");
  }
}

void Simulation::PostScenario() {
  TransferSpec spec;
  const uint64_t devices = 2 * options_.engines;
  spec.key = {"sim", GlobalDeviceId(Random(devices)), GlobalDeviceId(Random(devices)),
              absl::StrCat("key-", scenarios_.size())};
  // Sometimes the key of a pair that is over; only once, or scenarios would meet each other's
  // halves.
  if (!scenarios_.empty() && Chance(40)) {
    Scenario& old = scenarios_[Random(scenarios_.size())];
    if (!old.disturbed && !old.key_taken && old.send != 0 && old.receive != 0 &&
        halves_[old.send].ended && halves_[old.receive].ended && halves_[old.send].status.ok()) {
      old.key_taken = true;
      spec.key = halves_[old.send].spec.key;
    }
  }
  const int source = OwnerOf(spec.key.source);
  const int destination = OwnerOf(spec.key.destination);
  const uint64_t index = scenarios_.size();
  scenarios_.emplace_back();
  Scenario& scenario = scenarios_.back();
  if (source != destination) {
    scenario.losses = LinkOf(source, destination).losses;
    if (LinkOf(source, destination).unaware > 0) scenario.disturbed = true;
  }
  const uint64_t sizes[] = {0, 1, 4096, 100'000};
  spec.bytes = sizes[Random(4)];
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
    if (Chance(8)) send.route = Chance(50) ? Route::kUcx : Route::kMapped;
    if (Chance(8)) receive.route = Chance(50) ? Route::kUcx : Route::kMapped;
  } else if (Chance(10)) {
    send.route = Route::kLocal;
  }
  const int what = static_cast<int>(Random(10));  // 0: no send, 1: no receive
  for (TransferSpec* half : {&send, &receive}) {
    if (what == (half == &send ? 0 : 1)) continue;
    const bool late = Chance(25);
    After(Delay(30), [this, index, spec = std::move(*half), late] { PostHalf(index, spec, late); });
  }
}

void Simulation::PostHalf(uint64_t scenario, TransferSpec spec, bool define_later) {
  const int owner = OwnerOf(spec.side == Side::kSend ? spec.key.source : spec.key.destination);
  Node& node = nodes_[owner];
  const uint64_t index = halves_.size();
  uint64_t left = spec.bytes;
  for (uint64_t pieces = 1 + Random(3); pieces > 1; --pieces) {
    const uint64_t length = left == 0 ? 0 : Random(left);
    spec.ranges.push_back({ArenaId(index), spec.bytes - left, length});
    left -= length;
  }
  spec.ranges.push_back({ArenaId(index), spec.bytes - left, left});
  spec.deadline = now_ + (Chance(70) ? absl::Seconds(10) : absl::Milliseconds(20) + Delay(130));
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
  halves_.push_back(half);
  by_id_[{owner, half.id.value()}] = index;
  (spec.side == Side::kSend ? scenarios_[scenario].send : scenarios_[scenario].receive) = index;
  ++node.open;
  Say(absl::StrCat("post ", NameOf(half), define_later ? ", defined later" : ""));
  node.engine->Post(now_, SessionId(session), sequence, {spec});
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
    const HalfModel& half = halves_[1 + Random(halves_.size() - 1)];
    if (half.ended) continue;
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

void Simulation::KillSession() {
  const int index = static_cast<int>(Random(options_.engines));
  Node& node = nodes_[index];
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

}  // namespace ferry
