// SPDX-License-Identifier: Apache-2.0
// The lanes' side of groups, over strict communicators: launches are late, fail, refuse or hang.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/sim/model/simulation.h"
#include "transfer/clique/reservations.h"

namespace ferry {

HostCommunicators::Key Simulation::KeyOf(int node, const Clique& clique, uint32_t attempt) {
  const int leader = OwnerOf(clique.low);
  const int follower = OwnerOf(clique.high);
  if (node == leader) return {clique, nodes_[leader].life, attempt};
  return {clique, LinkOf(leader, follower).life[EndOf(leader, follower)], attempt};
}

void Simulation::NoteGroup(int from, int to, const Group& group) {
  for (const Chunk& chunk : group.chunks) {
    const bool firing = chunk.pair.slot != 0;  // named by its receive
    const HalfModel* half = HalfAt(chunk.pair.to_low != firing ? to : from, chunk.pair.transfer);
    if (half == nullptr) continue;  // crashed
    for (uint64_t place = 0; place < half->offered_as; ++place) {
      scenarios_[half[place].scenario].attempts.insert(KeyOf(from, group.clique, group.attempt));
    }
  }
}

void Simulation::OnCommunicatorOpen(int node, const CommunicatorOpen& open) {
  const HostCommunicators::Key key = KeyOf(node, open.clique, open.attempt);
  const bool low = OwnerOf(open.clique.low) == node;
  const std::string name =
      absl::StrCat("node-", node, " opens attempt ", open.attempt, " of ", Describe(open.clique));
  Say(name);
  if (open.device != (low ? open.clique.low : open.clique.high) || low != open.unique_id.empty()) {
    Fail(absl::StrCat(name, ": not its part"));
  }
  std::string error;
  communicators_.Open(key, low, node, &error);
  if (!error.empty()) Fail(absl::StrCat(name, ": ", error));
  const auto when_alive = [this, node](absl::Duration delay, auto act) {
    After(delay, [this, node, act, life = nodes_[node].life] {
      if (nodes_[node].life != life) return;
      act(*EngineAt(node));
      Touched(node);
    });
  };
  if (low) {
    when_alive(Delay(3), [this, open](TransferEngine& engine) {
      engine.OnCommunicatorId(now_, open.clique, open.attempt, "id");
    });
  }
  if (!calm_ && Chance(profile_.group_fault)) {
    ++count_.launches;
    const uint64_t dice = Random(3);
    Say(absl::StrCat(name, dice == 0 ? ", which hangs" : ", which fails"));
    if (dice == 0) return;
    when_alive(Delay(10), [this, open, dice](TransferEngine& engine) {
      engine.OnCommunicatorFailed(
          now_, open.clique, open.attempt,
          dice == 1 ? Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                            "no communicator can be had")
                    : Error(absl::StatusCode::kAborted, Reason::kCommAborted, "an operator"));
    });
    return;
  }
  if (!communicators_.Meet(key, low)) return;
  for (const bool end : {false, true}) {
    After(Delay(20), [this, key, end] {
      if (!communicators_.OnOpened(key, end)) return;  // it has ended
      const int node = OwnerOf(end ? key.clique.low : key.clique.high);
      Say(absl::StrCat("node-", node, " has opened attempt ", key.attempt, " of ",
                       Describe(key.clique)));
      EngineAt(node)->OnCommunicatorOpened(now_, key.clique, key.attempt);
      Touched(node);
      StartLane(end ? key.clique.low : key.clique.high);
    });
  }
}

void Simulation::CheckFiring(const std::string& name, const HalfModel& half, const HalfModel& other,
                             const GroupLaunch& launch) {
  const auto fired = [](const GroupChunk& chunk) { return chunk.bundle != 0; };
  if (!std::all_of(launch.chunks.begin(), launch.chunks.end(), fired) ||
      launch.chunks.size() > kMaxGroupFirings) {
    Fail(absl::StrCat(name, ": a firing has other company than a few firings"));
  }
  if (!half.armed || half.aborted) Fail(absl::StrCat(name, ": it is not armed"));
  if (!half.told || !other.told || half.firings != other.firings) {
    Fail(absl::StrCat(name, ": fired though one end does not want it"));
  }
}

uint64_t Simulation::CarriedBy(const HalfModel& half, const GroupChunk& chunk) const {
  return half.stride == 0 ? 1 : chunk.layout.bytes() / half.spec.bytes;
}

void Simulation::CheckInGroup(const std::string& name, const HalfModel& half,
                              const GroupChunk& chunk, const GroupLaunch& launch) {
  const Scenario& scenario = scenarios_[half.scenario];
  const bool send = half.spec.side == Side::kSend;
  const HalfModel& other = halves_[send ? scenario.receive : scenario.send];
  const std::string what = absl::StrCat(name, ": ", NameOf(half));
  if (half.ended) Fail(absl::StrCat(what, ": it is over"));
  if (chunk.bundle != 0) {
    CheckFiring(what, half, other, launch);
  } else if (half.outstanding) {
    Fail(absl::StrCat(what, ": another launch of it is outstanding"));
  }
  if (&other == &halves_[0]) Fail(absl::StrCat(what, ": has no other half"));
  if (!half.defined || !other.defined) Fail(absl::StrCat(what, ": not defined at both ends"));
  if (other.spec.bytes != half.spec.bytes) Fail(absl::StrCat(what, ": bytes differ"));
  if (chunk.side != half.spec.side) Fail(absl::StrCat(what, ": not its side"));
  if (CliqueOf(half.spec.key) != launch.clique) Fail(absl::StrCat(what, ": not its clique"));
}

void Simulation::PutOut(HalfModel& half, uint64_t carried, const GroupChunk& chunk,
                        std::vector<std::pair<uint64_t, uint64_t>>& parts) {
  const auto first = static_cast<uint64_t>(&half - halves_.data());
  const uint64_t end = chunk.offset + chunk.bytes;
  for (uint64_t place = 0; place < carried; ++place) {
    HalfModel& member = halves_[first + place];
    const uint64_t from = place * member.spec.bytes, to = from + member.spec.bytes;
    const uint64_t bytes =
        std::min(to, std::max(from, end)) - std::min(to, std::max(from, chunk.offset));
    member.cut = std::min(to, std::max(from, end)) - from;
    ++member.chunks_out;
    parts.emplace_back(first + place, bytes);
  }
}

void Simulation::OnGroupLaunch(int node, const GroupLaunch& launch) {
  const std::string name =
      absl::StrCat("node-", node, " launches group ", launch.number, " attempt ", launch.attempt,
                   " of ", Describe(launch.clique));
  Say(name);
  ++count_.groups;
  HostCommunicators::Call call;
  call.key = KeyOf(node, launch.clique, launch.attempt);
  call.low = OwnerOf(launch.clique.low) == node;
  call.node = node;
  call.group = launch.ticket;
  if (launch.device != call.device()) Fail(absl::StrCat(name, ": not its device"));
  if (launch.chunks.empty()) Fail(absl::StrCat(name, ": it is empty"));
  if (launch.chunks.size() > engine_options_.cliques.cutting.group_chunks) {
    Fail(absl::StrCat(name, ": it has ", launch.chunks.size(), " chunks"));
  }
  uint64_t staged = 0, direct = 0;  // bytes
  bool small = false;
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (const GroupChunk& chunk : launch.chunks) {
    HalfModel* half = chunk.bundle != 0 ? &halves_[by_bundle_[{node, chunk.bundle}]]
                                        : HalfAt(node, chunk.transfer);
    if (half == nullptr || half == &halves_[0]) {
      Fail(absl::StrCat(name, ": unknown ", chunk.transfer.value()));
      continue;
    }
    const auto index = static_cast<uint64_t>(half - halves_.data());
    const uint64_t carried = CarriedBy(*half, chunk), bytes = carried * half->spec.bytes;
    const std::string what = absl::StrCat(name, ": ", NameOf(*half));
    if (index + carried > halves_.size() ||
        (chunk.bundle == 0 && !(chunk.layout == LayoutOf(index, carried)))) {
      Fail(absl::StrCat(what, ": not as it was posted"));
      continue;
    }
    if (carried > 1) ++count_.convoys;
    uint64_t cut = 0;
    for (uint64_t i = index; i < index + carried; ++i) {
      CheckInGroup(name, halves_[i], chunk, launch);
      cut += halves_[i].cut;
    }
    const Scenario& scenario = scenarios_[half->scenario];
    const bool send = half->spec.side == Side::kSend;
    const uint64_t others = send ? scenario.receive : scenario.send;
    // What was on a failed attempt is not sent again; the destination has yet to say that the rest
    // need not be sent either.
    const bool next =
        chunk.offset == cut || (send && chunk.offset > cut && AttemptFailed(scenario));
    if (!next || chunk.bytes > bytes - chunk.offset) {
      Fail(absl::StrCat(what, ": not its next bytes"));
      continue;
    }
    const auto pieces = [](const Layout& layout) {
      return layout.blocks() != nullptr ? 2 : layout.extents().size();
    };
    const GroupCutter::Options& cutting = engine_options_.cliques.cutting;
    const bool whole =
        chunk.bundle != 0 ? bytes < cutting.direct_bytes : bytes <= cutting.chunk_bytes;
    small = small || whole;
    const bool staging =
        whole || pieces(LayoutOf(index, carried)) != 1 || pieces(LayoutOf(others, carried)) != 1;
    (staging ? staged : direct) += chunk.bytes;
    PutOut(*half, carried, chunk, parts);
    const bool to_low = half->spec.key.destination == launch.clique.low;
    call.ops.push_back({to_low, half->scenario, chunk.offset, chunk.bytes});
  }
  const uint64_t bound = engine_options_.cliques.cutting.group_bytes;
  if (staged > bound) Fail(absl::StrCat(name, ": ends may have to stage ", staged, " bytes"));
  // A direct one may have a chunk more, so that its last one is no small piece.
  if (small && staged + direct > bound + engine_options_.cliques.cutting.chunk_bytes) {
    Fail(absl::StrCat(name, ": small ones go along with ", direct, " bytes"));
  }
  const GlobalDeviceId device = call.device();
  std::string error;
  const HostCommunicators::CallId id = communicators_.Launch(std::move(call), &error);
  call_halves_[id] = std::move(parts);
  if (!error.empty()) Fail(absl::StrCat(name, ": ", error));
  if (communicators_.QueueOf(device) > LaneReservations::kDepth) {
    Fail(absl::StrCat(name, ": its lane has too many"));
  }
  if (communicators_.LockedUp(device)) Fail(absl::StrCat(name, ": lanes wait for each other"));
  StartLane(device);
}

void Simulation::OnCommunicatorClosing(int node, const CommunicatorClosing& closing) {
  const std::string name = absl::StrCat("node-", node, " is to close attempt ", closing.attempt,
                                        " of ", Describe(closing.clique));
  Say(name);
  std::string error;
  communicators_.Closing(KeyOf(node, closing.clique, closing.attempt),
                         OwnerOf(closing.clique.low) == node, &error);
  if (!error.empty()) Fail(absl::StrCat(name, ": ", error));
}

void Simulation::OnCommunicatorEnd(int node, const CommunicatorEnd& end) {
  const std::string name = absl::StrCat("node-", node, end.status.ok() ? " closes" : " aborts",
                                        " attempt ", end.attempt, " of ", Describe(end.clique));
  Say(absl::StrCat(name, ": ", end.status.ToString()));
  std::string error;
  const bool low = OwnerOf(end.clique.low) == node;
  HostCommunicators::Key key = KeyOf(node, end.clique, end.attempt);
  const auto calls = communicators_.End(key, low, !end.status.ok(), &error);
  if (!error.empty()) Fail(absl::StrCat(name, ": ", error));
  for (HostCommunicators::CallId id : calls) {
    AnswerCall(id, absl::AbortedError("aborted"), Delay(10));
  }
}

void Simulation::StartLane(GlobalDeviceId device) {
  const auto id = communicators_.ToStart(device);
  if (!id) return;
  const bool late = !calm_ && slow_lanes_.contains(device.value());
  if (late) ++count_.launches;
  After(Delay(late ? 20 : 1), [this, id = *id] { StartCall(id); });
}

void Simulation::StartCall(HostCommunicators::CallId id) {
  HostCommunicators::Call* call = communicators_.Find(id);
  if (call == nullptr || call->aborted) return;
  if (!calm_ && Chance(profile_.group_fault)) {
    ++count_.launches;
    // Whoever was in this group is excused; the others on its attempt must say so.
    for (const auto& [half, bytes] : call_halves_[id]) {
      scenarios_[halves_[half].scenario].disturbed = true;
    }
    const uint64_t dice = Random(3);
    if (dice == 0) {
      Say(absl::StrCat("node-", call->node, ": a group hangs"));
      call->hangs = true;
      return;
    }
    const absl::Status status =
        dice == 1 ? Error(absl::StatusCode::kInternal, Reason::kInternal, "the lane failed")
                  : Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                          "no communicator can be had");
    return AnswerCall(id, status, Delay(5));
  }
  for (HostCommunicators::CallId both : communicators_.Arrive(id)) {
    AnswerCall(both, absl::OkStatus(), Delay(5));
  }
}

void Simulation::AnswerCall(HostCommunicators::CallId id, absl::Status status,
                            absl::Duration delay) {
  After(delay, [this, id, status] {
    const HostCommunicators::Call* found = communicators_.Find(id);
    if (found == nullptr) return;  // was answered before, or crashed
    const HostCommunicators::Call call = *found;
    Say(absl::StrCat("node-", call.node, " answers a group of ", Describe(call.key.clique), ": ",
                     status.ToString()));
    communicators_.Answer(id);
    const auto parts = call_halves_.extract(id);
    for (const auto& [index, bytes] : parts.mapped()) {
      HalfModel& half = halves_[index];
      --half.chunks_out;
      if (status.ok()) half.moved += bytes;
      if (half.bundle == 0 || !status.ok() || half.moved < half.spec.bytes) continue;
      ++half.firings;
      half.told = false;
      half.cut = half.moved = 0;
      WantFiring(index, half.attempt);
    }
    if (Chance(5)) {
      EngineAt(call.node)->OnSmsBusy(now_, call.device(), now_ + absl::Milliseconds(10));
    }
    EngineAt(call.node)->OnGroupDone(now_, call.group, status);
    Touched(call.node);
    StartLane(call.device());
  });
}

}  // namespace ferry
