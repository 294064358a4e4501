// SPDX-License-Identifier: Apache-2.0
// The lanes' side: launches take their time, fail, refuse the route or hang until they are aborted.
// Each order of an engine is checked against what both ends' clients posted.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/sim/model/simulation.h"

namespace ferry {
namespace {

absl::Status Refused() {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
               "the lane refuses");
}
absl::Status Broken() {
  return Error(absl::StatusCode::kInternal, Reason::kInternal, "the lane failed");
}

}  // namespace

Simulation::HalfModel* Simulation::HalfAt(int node, TransferId id) {
  auto entry = by_id_.find({node, id.value()});
  return entry == by_id_.end() ? nullptr : &halves_[entry->second];
}

uint64_t Simulation::HalfOfArena(const Layout& layout) {
  const absl::Span<const Range> extents = layout.extents();
  if (extents.empty() || extents[0].arena.value() >= halves_.size()) return 0;
  const uint64_t first = extents[0].arena.value();
  const uint64_t stride = halves_[first].stride;
  return stride == 0 ? first : first + extents[0].offset / stride;
}

Layout Simulation::LayoutOf(uint64_t first, uint64_t count) const {
  if (count == 1) return halves_[first].spec.layout;
  std::vector<Range> ranges;
  for (uint64_t i = first; i < first + count; ++i) {
    ranges.push_back(halves_[i].spec.layout.extents()[0]);
  }
  return Layout::Merged(std::move(ranges));
}

std::string Simulation::NameOf(const HalfModel& half) const {
  return absl::StrCat("node-", half.node, " ", half.spec.side == Side::kSend ? "send " : "receive ",
                      half.id.value(), " of ", Describe(half.spec.key), ", ", half.spec.bytes,
                      " bytes, scenario ", half.scenario);
}

void Simulation::CheckLaunch(const std::string& name, const HalfModel& half, const Launch& launch) {
  if (half.ended) Fail(absl::StrCat(name, ": it is over"));
  if (half.outstanding || half.chunks_out > 0) {
    Fail(absl::StrCat(name, ": a launch of it is outstanding"));
  }
  if (launch.attempt <= half.attempt) Fail(absl::StrCat(name, ": attempt does not rise"));
  if (!half.defined) Fail(absl::StrCat(name, ": it is not defined"));
  const bool send = half.spec.side == Side::kSend;
  if (launch.device != (send ? half.spec.key.source : half.spec.key.destination)) {
    Fail(absl::StrCat(name, ": not its device"));
  }
}

void Simulation::OnLaunch(int node, const Launch& launch) {
  HalfModel* half = HalfAt(node, launch.transfer);
  if (half == nullptr) return Fail(absl::StrCat("launch of unknown ", launch.transfer.value()));
  const std::string name = absl::StrCat("launch ", RouteName(launch.route), " attempt ",
                                        launch.attempt, " of ", NameOf(*half));
  Say(name);
  const uint64_t index = static_cast<uint64_t>(half - halves_.data());
  const bool send = half->spec.side == Side::kSend;
  const uint64_t carried = half->stride == 0 ? 1 : launch.bytes / half->spec.bytes;
  if (launch.bytes != carried * half->spec.bytes || index + carried > halves_.size() ||
      !(launch.layout == LayoutOf(index, carried))) {
    return Fail(absl::StrCat(name, ": not its layout"));
  }
  if (carried > 1) ++count_.convoys;
  for (uint64_t i = index; i < index + carried; ++i) {
    CheckLaunch(name, halves_[i], launch);
    halves_[i].attempt = launch.attempt;
    halves_[i].outstanding = true;
  }
  half->carried = carried;
  if (send != (launch.role == LaunchRole::kSend)) Fail(absl::StrCat(name, ": not its role"));
  const bool armed = launch.armed.has_value();
  if (armed != (half->spec.prepared && !FiredByGo(launch.route))) {
    Fail(absl::StrCat(name, ": it is armed only if it is prepared"));
  }
  if (!armed && TwoSided(launch.route) == (launch.role == LaunchRole::kCopy)) {
    Fail(absl::StrCat(name, ": role and route do not fit"));
  }
  half->aborted = false;
  half->role = launch.role;
  half->tag = launch.tag;
  half->armed = false;
  half->bundle = 0;
  Scenario& scenario = scenarios_[half->scenario];
  const uint64_t dice = Random(100);
  if (dice < (launch.role == LaunchRole::kCopy ? 14 : 12)) ++count_.launches;

  if (launch.role == LaunchRole::kCopy) {
    const uint64_t other_index = HalfOfArena(launch.remote_layout);
    HalfModel& other = halves_[other_index];
    const bool lost = other.node != node && (LinkOf(other.node, node).losses != scenario.losses);
    if (other_index == 0 || other_index + carried > halves_.size() ||
        !(LayoutOf(other_index, carried) == launch.remote_layout)) {
      return Fail(absl::StrCat(name, ": the source is not one"));
    }
    if ((launch.route == Route::kLocal) != (other.node == node))
      Fail(absl::StrCat(name, ": not its route"));
    for (uint64_t place = 0; place < carried; ++place) {
      HalfModel& from = halves_[other_index + place];
      HalfModel& to = halves_[index + place];
      if (from.spec.side != Side::kSend || !(from.spec.key == to.spec.key)) {
        Fail(absl::StrCat(name, ": the source is not one"));
      }
      if (!from.defined) Fail(absl::StrCat(name, ": the source is not defined"));
      if (from.ended && !lost) Fail(absl::StrCat(name, ": the source is over"));
      if (from.spec.bytes != to.spec.bytes) Fail(absl::StrCat(name, ": bytes differ"));
      to.other = other_index + place;
      from.other = index + place;
      ++from.copied_by_peer;
    }
    absl::Status status;
    if (dice < 10)
      status = Refused();
    else if (dice < 14)
      status = Broken();
    for (uint64_t i = index; i < index + carried; ++i) {
      if (dice >= 10 && dice < 14) scenarios_[halves_[i].scenario].disturbed = true;
      if (dice < 10) scenarios_[halves_[i].scenario].route_may_fail = true;
    }
    if (armed && status.ok()) return Arm(index);
    return Answer(index, launch.attempt, status, Delay(10));
  }

  if (armed && launch.route == Route::kNccl) {
    half->armed = true;
    half->bundle = launch.armed->bundle;
    half->told = false;
    half->cut = half->moved = 0;
    by_bundle_[{node, half->bundle}] = index;
    return WantFiring(index, half->attempt);
  }
  if (armed && launch.route == Route::kMapped) {  // the source's lane
    if (dice >= 6) return Arm(index);
    scenario.route_may_fail = true;
    return Answer(index, launch.attempt, Refused(), Delay(10));
  }

  const int destination = send ? static_cast<int>(launch.peer.value()) : node;
  // Tags are unique in one life of the destination's daemon.
  const uint64_t life = destination == node
                            ? nodes_[node].life
                            : LinkOf(node, destination).life[EndOf(destination, node)];
  const std::pair<int, uint64_t> place(destination, life << 32 | launch.tag);
  Rendezvous& meeting = rendezvous_[place];
  uint64_t& mine = send ? meeting.send : meeting.receive;
  if (mine != 0) Fail(absl::StrCat(name, ": its tag is taken"));
  mine = index;
  if (meeting.send != 0 && meeting.receive != 0) {
    HalfModel& s = halves_[meeting.send];
    HalfModel& r = halves_[meeting.receive];
    if (s.carried != r.carried) Fail(absl::StrCat(name, ": the tag joins different convoys"));
    for (uint64_t place = 0; place < r.carried; ++place) {
      HalfModel& from = halves_[meeting.send + place];
      HalfModel& to = halves_[meeting.receive + place];
      if (!(from.spec.key == to.spec.key)) Fail(absl::StrCat(name, ": the tag joins two keys"));
      from.other = meeting.receive + place;
      to.other = meeting.send + place;
    }
    if (s.spec.layout.bytes() != r.spec.layout.bytes()) {
      Fail(absl::StrCat(name, ": the ends move different numbers of bytes"));
    }
  }
  for (uint64_t i = index; i < index + carried; ++i) {
    if (dice < 6) scenarios_[halves_[i].scenario].route_may_fail = true;
    if (dice >= 6 && dice < 12) scenarios_[halves_[i].scenario].disturbed = true;
  }
  if (dice < 6) {
    half->tag = 0;  // does not take part
    return Answer(index, launch.attempt, Refused(), Delay(10));
  }
  if (dice < 9) {
    half->tag = 0;
    return Answer(index, launch.attempt, Broken(), Delay(10));
  }
  if (dice < 12) {
    half->tag = 0;
    return;  // hangs
  }
  if (armed) return Arm(index);
  if (send && Chance(20)) Answer(index, launch.attempt, absl::OkStatus(), Delay(5));  // eager
  TryRendezvous(place);
}

void Simulation::TryRendezvous(std::pair<int, uint64_t> place) {
  const uint64_t tag = place.second & 0xffffffff;
  const Rendezvous& meeting = rendezvous_[place];
  if (meeting.send == 0 || meeting.receive == 0) return;
  const HalfModel& send = halves_[meeting.send];
  const HalfModel& receive = halves_[meeting.receive];
  if (send.tag != tag || receive.tag != tag || send.aborted || receive.aborted) return;
  if (!receive.outstanding) return;
  Answer(meeting.receive, receive.attempt, absl::OkStatus(), Delay(10));
  Answer(meeting.send, send.attempt, absl::OkStatus(), Delay(10));
}

void Simulation::Arm(uint64_t index) {
  HalfModel& half = halves_[index];
  half.armed = true;
  const bool send = half.spec.side == Side::kSend;
  const int other = OwnerOf(send ? half.spec.key.destination : half.spec.key.source);
  if (other != half.node) half.armed_losses = LinkOf(half.node, other).losses;
  if (send) return;
  After(Delay(15), [this, index, attempt = half.attempt] { FireArmed(index, attempt); });
}

void Simulation::FireArmed(uint64_t index, uint32_t attempt) {
  HalfModel& receive = halves_[index];
  if (!receive.armed || receive.aborted || receive.attempt != attempt) return;
  if (receive.other == 0) {  // on tcp: the source is not armed yet
    After(Delay(15), [this, index, attempt] { FireArmed(index, attempt); });
    return;
  }
  HalfModel& send = halves_[receive.other];
  const bool local = send.node == receive.node;
  if (!local && LinkOf(send.node, receive.node).losses != receive.armed_losses) return;
  if (send.firings < receive.firings) {
    send.firings = receive.firings;  // and not before can it want the next one
  } else if (!AtGoal(receive) &&
             // A source that is still armed for the route before takes no part.
             (local || (send.armed && !send.aborted && send.attempt == receive.attempt))) {
    if (send.ended) Fail(absl::StrCat("fired though its source is over: ", NameOf(receive)));
    ++receive.firings;
    if (local || Chance(50)) send.firings = receive.firings;  // else it looks later
  }
  After(Delay(15), [this, index, attempt] { FireArmed(index, attempt); });
}

void Simulation::WantFiring(uint64_t index, uint32_t attempt) {
  After(Delay(15), [this, index, attempt] {
    HalfModel& half = halves_[index];
    if (!half.armed || half.aborted || half.attempt != attempt || AtGoal(half)) return;
    half.told = true;
    EngineAt(half.node)->OnFiringWanted(now_, half.bundle);
    Touched(half.node);
  });
}

void Simulation::OnFired(int node, const Fired& fired) {
  HalfModel* half = HalfAt(node, fired.transfer);
  if (half == nullptr || !half->spec.prepared || half->ended || half->outstanding) {
    return Fail(
        absl::StrCat("node-", node, ": a firing that makes no sense: ", fired.transfer.value()));
  }
  if (fired.firing != ++half->firings) {
    Fail(absl::StrCat("firing ", fired.firing, " is not the next one of ", NameOf(*half)));
  }
}

void Simulation::Answer(uint64_t index, uint32_t attempt, absl::Status status,
                        absl::Duration delay) {
  After(delay, [this, index, attempt, status] {
    HalfModel& half = halves_[index];
    if (!half.outstanding || half.attempt != attempt) return;  // was answered before
    for (uint64_t place = 0; place < half.carried; ++place) {
      halves_[index + place].outstanding = false;
      if (half.role == LaunchRole::kCopy) --halves_[half.other + place].copied_by_peer;
    }
    if (half.armed && half.role == LaunchRole::kSend && half.other != 0) {
      half.firings = halves_[half.other].firings;  // it looks at its slot once more
    }
    half.armed = false;
    Say(absl::StrCat("answer attempt ", attempt, " of ", NameOf(half), ": ", status.ToString()));
    EngineAt(half.node)->OnLaunchDone(now_, half.id, attempt, status);
    Touched(half.node);
  });
}

void Simulation::OnAbort(int node, TransferId id, const absl::Status& why) {
  HalfModel* half = HalfAt(node, id);
  if (half == nullptr || !half->outstanding || half->aborted ||
      (half->role == LaunchRole::kCopy && !half->spec.prepared)) {
    return Fail(absl::StrCat("node-", node, ": an abort that makes no sense: ", id.value()));
  }
  if (why.ok()) Fail("an abort with no reason");
  if (half->chunks_out > 0) Fail(absl::StrCat("a group carries what is aborted: ", NameOf(*half)));
  Say(absl::StrCat("abort ", NameOf(*half), ": ", why.ToString()));
  half->aborted = true;
  Answer(static_cast<uint64_t>(half - halves_.data()), half->attempt, absl::AbortedError("aborted"),
         Delay(10));
}

}  // namespace ferry
