// SPDX-License-Identifier: Apache-2.0
// What must hold when a transfer ends, and when all is over.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/sim/model/simulation.h"

namespace ferry {
namespace {

// From a deadline to the end, at most: a group that was launched before, and what runs ahead of it
// on either lane, may take the engines' deadlines for groups.
constexpr absl::Duration kLateness = absl::Seconds(8);
// From when a half is posted whose partner has ended, and the destination knows, to its end.
// Without being told it would wait for a deadline of 10 s.
constexpr absl::Duration kToldWithin = absl::Seconds(8);

}  // namespace

// Of queues, after everything that an engine is told.
void Simulation::CheckBounds(int index) {
  const EngineView& view = nodes_[index].engine->view();
  for (const auto& [peer, held] : view.OffersHeld()) {
    if (held <= engine_options_.bounds.offers_per_peer) continue;
    Fail(absl::StrCat("node-", index, " holds ", held, " offers of node-", peer.value(),
                      ", more than ", engine_options_.bounds.offers_per_peer));
  }
  for (size_t peer = 0; peer < nodes_.size(); ++peer) {
    const uint64_t bytes = view.RecordBytesFor(PeerId(static_cast<uint32_t>(peer)));
    const size_t tombstones = view.TombstonesHeld(PeerId(static_cast<uint32_t>(peer)));
    if (tombstones > engine_options_.tombstones_per_peer) {
      Fail(absl::StrCat("node-", index, " remembers ", tombstones,
                        " halves of transfers with node-", peer, ", more than ",
                        engine_options_.tombstones_per_peer));
    }
    if (bytes <= engine_options_.bounds.peer_kept_bytes) continue;
    Fail(absl::StrCat("node-", index, " keeps ", bytes, " bytes for node-", peer, ", more than ",
                      engine_options_.bounds.peer_kept_bytes));
  }
  if (view.waiting_pairs() > view.in_flight()) {
    Fail(absl::StrCat("node-", index, " has ", view.waiting_pairs(), " pairs that wait, but ",
                      view.in_flight(), " in flight"));
  }
}

void Simulation::CheckNode(int index) {
  const EngineView& view = nodes_[index].engine->view();
  if (view.in_flight() != nodes_[index].open) {
    Fail(absl::StrCat("node-", index, " has ", view.in_flight(), " in flight, not ",
                      nodes_[index].open));
  }
  CheckDrains(index);
}

// Nobody waits for what cannot come: not at a node that drains, and not at one that knows that the
// other one does.
void Simulation::CheckDrains(int index) {
  const EngineView& view = nodes_[index].engine->view();
  if (nodes_[index].drains && view.waiting_offers() > 0) {
    Fail(absl::StrCat("node-", index, " drains, and ", view.waiting_offers(), " offers wait"));
  }
  bool known = false;
  for (uint32_t peer = 0; peer < nodes_.size(); ++peer) {
    known = known || view.DrainsUntil(PeerId(peer)).has_value();
  }
  if (!known) return;
  for (const TransferRow& row : view.List(view.in_flight())) {
    const PeerId source(static_cast<uint32_t>(OwnerOf(row.key.source)));
    if (row.side != Side::kReceive || absl::string_view(row.state) != "waiting" ||
        !view.DrainsUntil(source)) {
      continue;
    }
    const HalfModel* half = HalfAt(index, row.transfer);
    if (half != nullptr && now_ >= half->spec.deadline) continue;  // it has asked there
    Fail(absl::StrCat("node-", index, ": transfer ", row.transfer.value(), " waits for node-",
                      source.value(), ", which drains"));
  }
}

bool Simulation::AttemptFailed(const Scenario& scenario) const {
  for (const HostCommunicators::Key& key : scenario.attempts) {
    if (failed_attempts_.contains(key)) return true;
  }
  return false;
}

void Simulation::OnEnded(int node, const Ended& ended) {
  const HalfModel* first = HalfAt(node, ended.transfer);
  if (ended.count > 1 && first != nullptr) {
    const uint64_t index = static_cast<uint64_t>(first - halves_.data());
    if (index + ended.count > halves_.size() || !(ended.layout == LayoutOf(index, ended.count))) {
      Fail(absl::StrCat("ended with what was not posted: ", NameOf(*first)));
    }
  }
  for (uint32_t place = 0; place < ended.count; ++place) {
    Ended one = ended;
    one.transfer = TransferId(ended.transfer.value() + place);
    one.over_value += place;
    const HalfModel* half = HalfAt(node, one.transfer);
    if (ended.count > 1 && half != nullptr) one.layout = half->spec.layout;
    OnOneEnded(node, one);
  }
}

void Simulation::OnOneEnded(int node, const Ended& ended) {
  HalfModel* half = HalfAt(node, ended.transfer);
  if (half == nullptr)
    return Fail(
        absl::StrCat("node-", node, ": an unknown transfer ended: ", ended.transfer.value()));
  Say(absl::StrCat("ended ", NameOf(*half), ": ", ended.status.ToString()));
  if (half->ended) Fail(absl::StrCat("ended twice: ", NameOf(*half)));
  if (half->outstanding || half->chunks_out > 0) {
    Fail(absl::StrCat("ended with its launch outstanding: ", NameOf(*half)));
  }
  if (ended.status.ok() && ended.route == Route::kNccl && ended.side == Side::kReceive &&
      half->moved != half->spec.bytes) {
    Fail(absl::StrCat("ended OK with ", half->moved, " bytes: ", NameOf(*half)));
  }
  // Of a send whose daemon crashed the model no longer knows in which groups it was.
  const Scenario& scenario = scenarios_[half->scenario];
  if (HasReason(ended.status, Reason::kCommAborted) && !scenario.disturbed &&
      !AttemptFailed(scenario)) {
    Fail(absl::StrCat("was not on a communicator that failed: ", NameOf(*half)));
  }
  if (HasReason(ended.status, Reason::kQueueFull)) {
    ++count_.refused;
    if (!scenario.queue_full) {
      Fail(absl::StrCat("was refused by a queue that was not full: ", NameOf(*half)));
    }
  }
  if (HasReason(ended.status, Reason::kDraining) && !scenario.drained) {
    Fail(absl::StrCat("was ended by a drain of others: ", NameOf(*half)));
  }
  if (ended.over_value != half->spec.over_value) {
    Fail(absl::StrCat("ended at another value of the 'over' counter: ", NameOf(*half)));
  }
  if (half->watched) Fail(absl::StrCat("ended and still watched: ", NameOf(*half)));
  if (half->copied_by_peer > 0 && !HasReason(ended.status, Reason::kPeerUnreachable)) {
    Fail(absl::StrCat("ended while its memory is being read: ", NameOf(*half)));
  }
  if (ended.side != half->spec.side || ended.bytes != half->spec.bytes ||
      !(ended.layout == half->spec.layout)) {
    Fail(absl::StrCat("ended with what was not posted: ", NameOf(*half)));
  }
  if (!ended.status.ok() && ReasonOf(ended.status) == Reason::kInternal &&
      !scenarios_[half->scenario].disturbed) {
    Fail(absl::StrCat("ended without a reason: ", NameOf(*half), ": ", ended.status.ToString()));
  }
  if (ended.prepared != half->spec.prepared || (ended.prepared && ended.status.ok())) {
    Fail(absl::StrCat("prepared ones end only because something ends them: ", NameOf(*half)));
  }
  if (!half->spec.prepared && now_ > half->spec.deadline + kLateness) {
    Fail(absl::StrCat("ended long after its deadline: ", NameOf(*half)));
  }
  half->ended = true;
  half->ended_at = now_;
  half->status = ended.status;
  ++(ended.status.ok() ? count_.ended_ok : count_.ended_badly);
  --nodes_[node].open;
}

void Simulation::CheckEnd() {
  for (size_t i = 1; i < halves_.size(); ++i) {
    const HalfModel& half = halves_[i];
    if (!half.ended) Fail(absl::StrCat("never ended: ", NameOf(half)));
    if (half.watched) Fail(absl::StrCat("still watched: ", NameOf(half)));
    if (half.bundle != 0) {
      // Whose group failed, or whose communicator did, may not know what the other end has.
      const Scenario& scenario = scenarios_[half.scenario];
      const bool send = half.spec.side == Side::kSend;
      const HalfModel& other = halves_[send ? scenario.receive : scenario.send];
      const bool lost = LinkOf(half.node, other.node).losses != scenario.losses ||
                        HasReason(half.status, Reason::kDaemonLost) ||
                        HasReason(other.status, Reason::kDaemonLost);
      const bool excused = lost || scenario.disturbed || AttemptFailed(scenario);
      if (half.firings != other.firings &&
          !(excused && half.firings + 1 >= other.firings && other.firings + 1 >= half.firings)) {
        Fail(absl::StrCat("fired differently in groups, ", half.firings, " and ", other.firings,
                          " times: ", NameOf(half)));
      }
    }
    if (half.spec.side != Side::kSend || half.other == 0) continue;
    const HalfModel& receive = halves_[half.other];
    if (half.status.ok() && !receive.status.ok() &&
        !HasReason(receive.status, Reason::kDaemonLost)) {
      Fail(absl::StrCat("OK only for the sender: ", NameOf(half), ": ", receive.status.ToString()));
    }
    const bool lost = half.node != receive.node &&
                      LinkOf(half.node, receive.node).losses != scenarios_[half.scenario].losses;
    const bool died = HasReason(half.status, Reason::kDaemonLost) ||
                      HasReason(receive.status, Reason::kDaemonLost);
    if (half.spec.prepared && half.firings != receive.firings &&
        !((lost || died) && half.firings + 1 == receive.firings)) {
      Fail(absl::StrCat("fired differently at its ends, ", half.firings, " and ", receive.firings,
                        " times: ", NameOf(half)));
    }
    if (died) continue;
    if (receive.status.ok() && !half.status.ok() &&
        !(lost && HasReason(half.status, Reason::kPeerUnreachable))) {
      Fail(absl::StrCat("OK only for the receiver: ", NameOf(half), ": ", half.status.ToString()));
    }
  }
  if (!communicators_.empty()) Fail("a group was not answered");
  for (size_t i = 0; i < scenarios_.size(); ++i) CheckScenario(i, scenarios_[i]);
  for (const Scenario& scenario : scenarios_) CheckTold(scenario);
  for (const MemberModel& member : members_) CheckMember(member);
  CheckNothingRemembered();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    TransferEngine& engine = *nodes_[i].engine;
    const EngineView& view = engine.view();
    if (view.in_flight() != 0 || view.waiting_offers() != 0 || view.waiting_pairs() != 0 ||
        view.groups() != 0 || !engine.TakeOutbox().empty() ||
        engine.NextDeadline() != absl::InfiniteFuture()) {
      Fail(absl::StrCat("node-", i, " has something left: ", view.in_flight(), " transfers, ",
                        view.waiting_offers(), " offers, ", view.waiting_pairs(), " pairs, ",
                        view.groups(), " groups"));
    }
    for (size_t peer = 0; peer < nodes_.size(); ++peer) {
      const uint64_t bytes = view.RecordBytesFor(PeerId(static_cast<uint32_t>(peer)));
      if (bytes > 0) Fail(absl::StrCat("node-", i, " keeps ", bytes, " bytes for node-", peer));
    }
  }
}

// All deadlines have passed, so that no key may still mean anything: neither in use nor poisoned.
void Simulation::CheckNothingRemembered() {
  for (size_t i = 1; i < halves_.size(); ++i) {
    TransferSpec spec = halves_[i].spec;
    spec.side = Side::kReceive;
    spec.defined = true;
    spec.deadline = absl::InfiniteFuture();
    spec.over_value = 0;
    TransferEngine& engine = *nodes_[OwnerOf(spec.key.destination)].engine;
    if (!engine.Check({&spec, 1}).empty()) Fail(absl::StrCat("key in use: ", NameOf(halves_[i])));
    const SessionId session(999);
    engine.Post(now_, session, i, {&spec, 1});
    const Outbox out = engine.TakeOutbox();
    if (!out.ended.empty() || !out.launches.empty()) {
      Fail(absl::StrCat("remembered for ever: ", NameOf(halves_[i])));
    }
    engine.Cancel(now_, MakeTransferId(session, i),
                  Error(absl::StatusCode::kUnavailable, Reason::kDraining, "only looked"));
    engine.TakeOutbox();
  }
}

bool Simulation::Linked(const MatchKey& key) {
  const int source = OwnerOf(key.source);
  const int destination = OwnerOf(key.destination);
  if (source == destination) return true;
  const Link& link = LinkOf(source, destination);
  return link.connected && link.up[0] && link.up[1];
}

// Whose partner ended by its own doing before it was posted is told at once.
void Simulation::CheckTold(const Scenario& scenario) {
  if (scenario.send == 0 || scenario.receive == 0 || scenario.key_taken || scenario.key_again)
    return;
  if (engine_options_.tombstones_per_peer != TransferEngine::Options().tombstones_per_peer) return;
  const HalfModel* first = &halves_[scenario.send];
  const HalfModel* second = &halves_[scenario.receive];
  if (first->posted_at > second->posted_at) std::swap(first, second);
  if (!first->linked || (first->node != second->node &&
                         LinkOf(first->node, second->node).losses != scenario.losses)) {
    return;  // what was not offered leaves nothing, and a lost link takes all away
  }
  const bool own =
      HasReason(first->status, Reason::kCancelled) || HasReason(first->status, Reason::kPoisoned) ||
      (HasReason(first->status, Reason::kPeerClientGone) && first->spec.side == Side::kSend) ||
      HasReason(first->status, Reason::kWaitingForPeer);
  if (!own || first->ended_at >= second->posted_at) return;
  ++count_.told;
  if (second->ended_at > second->posted_at + kToldWithin) {
    Fail(absl::StrCat("was not told that its partner had ended: ", NameOf(*second), ": ",
                      second->status.ToString()));
  }
}

// Who waits for a device whose last member has died is told of it soon.
void Simulation::CheckMember(const MemberModel& member) {
  const Scenario& scenario = scenarios_[member.scenario];
  const uint64_t index = scenario.send != 0 ? scenario.send : scenario.receive;
  if (index == 0 || !member.died_at) return;  // it could not be posted, or a daemon crashed
  const HalfModel& half = halves_[index];
  // Its own session may have been killed, which has the same reason.
  const bool gone = HasReason(half.status, Reason::kPeerClientGone) &&
                    absl::StrContains(half.status.message(), "nobody is left");
  count_.deserted += gone ? 1 : 0;
  if (gone && half.ended_at < *member.died_at) {
    Fail(absl::StrCat("ended before the last member died: ", NameOf(half)));
  }
  if (scenario.disturbed || scenario.queue_full ||
      LinkOf(half.node, member.node).losses != scenario.losses ||
      nodes_[member.node].life != member.life) {  // who has forgotten its members tells of none
    return;
  }
  const absl::Time since = std::max(*member.died_at, half.posted_at);
  if (!gone || half.ended_at > since + kToldWithin) {
    Fail(absl::StrCat("was not told that the last member is gone: ", NameOf(half), ": ",
                      half.status.ToString()));
  }
}

void Simulation::CheckScenario(uint64_t index, const Scenario& scenario) {
  const HalfModel& send = halves_[scenario.send];
  const HalfModel& receive = halves_[scenario.receive];
  const bool both = scenario.send != 0 && scenario.receive != 0;
  for (const HalfModel* half : {&send, &receive}) {
    if (half == &halves_[0]) continue;
    const std::string name =
        absl::StrCat("scenario ", index, ": ", NameOf(*half), ": ", half->status.ToString());
    if (half->status.ok() && (!both || scenario.mismatch || !send.defined || !receive.defined)) {
      Fail(absl::StrCat(name, ": must not be OK"));
    }
  }
  if (scenario.disturbed || (!both && scenario.send == 0 && scenario.receive == 0)) return;
  const HalfModel& any = scenario.send != 0 ? send : receive;
  const int source = OwnerOf(any.spec.key.source);
  const int destination = OwnerOf(any.spec.key.destination);
  if (source != destination && LinkOf(source, destination).losses != scenario.losses) return;
  // Nobody interfered: each half must have ended as its clients meant it.
  for (const HalfModel* half : {&send, &receive}) {
    if (half == &halves_[0]) continue;
    const absl::Status& status = half->status;
    bool expected = false;
    if (!both || !send.defined || !receive.defined) {
      expected = !status.ok();
    } else {
      const bool late = half->ended_at >= std::min(send.spec.deadline, receive.spec.deadline);
      const bool conflict = send.spec.route != receive.spec.route &&
                            send.spec.route != Route::kUnspecified &&
                            receive.spec.route != Route::kUnspecified;
      if (HasReason(send.status, Reason::kQueueFull)) {
        expected = !status.ok();
      } else if (scenario.mismatch) {
        expected = HasReason(status, Reason::kTransferMismatch);
      } else if (conflict) {
        expected = HasReason(status, Reason::kRouteUnavailable);
      } else {
        const bool done = half->spec.prepared
                              ? HasReason(status, Reason::kCancelled) && AtGoal(*half)
                              : status.ok();
        expected = done || (HasReason(status, Reason::kRouteUnavailable) &&
                            (source != destination || scenario.route_may_fail));
      }
      expected = expected || (late && absl::IsDeadlineExceeded(status)) ||
                 (late && HasReason(status, Reason::kPeerUnreachable)) ||
                 (profile_.group_fault > 0 && AttemptFailed(scenario));
    }
    if (!expected) {
      Fail(absl::StrCat("scenario ", index, ", in which nothing went wrong: ", NameOf(*half), ": ",
                        status.ToString()));
    }
  }
}

}  // namespace ferry
