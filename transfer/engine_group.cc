// SPDX-License-Identifier: Apache-2.0
// Groups: how a pair of route nccl is handed to its clique's leader, how a group gets both lanes,
// and what becomes of its transfers when it is over, fails or hangs. Leader and follower run the
// same code on a GroupRecord each; only the leader cuts groups. Their communicators are
// engine_comm.cc's.
//
// A chunk's half is pinned from when its daemon learns of the group until the group is over there:
// it neither ends nor is cancelled meanwhile. A destination that has ended a pair while its chunk
// was on the way refuses that chunk in its grant, so that both ends launch the same list.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

PairName NameIn(const Clique& clique, const Posted& half) {
  return {half.spec.key.destination == clique.low,
          half.spec.side == Side::kSend ? half.id : half.partner};
}

GlobalDeviceId LaneOf(const GroupRecord& group) {
  return group.leads ? group.clique.low : group.clique.high;
}

}  // namespace

bool TransferEngine::Impl::Leads(PeerId leader_id, const Clique& clique, PeerId follower) const {
  const auto owns = [&](PeerId peer, GlobalDeviceId device) {
    auto entry = devices.owner.find(device);
    return entry != devices.owner.end() && entry->second == peer;
  };
  return clique.low < clique.high && owns(leader_id, clique.low) && owns(follower, clique.high);
}

// --- Pairs.

void TransferEngine::Impl::HandOverPair(Posted& receive) {
  const Clique clique = CliqueOf(receive.spec.key);
  receive.stage = Stage::kMatched;
  receive.route = Route::kNccl;
  receive.role = LaunchRole::kCopy;
  receive.why = absl::OkStatus();
  receive.handed = true;
  BeginEstimate(receive, Route::kNccl);
  const SourceHalf source = SourceOf(receive);
  const int32_t priority = PriorityOf(receive, source);
  const bool direct = InOnePiece(*source.layout) && InOnePiece(receive.spec.layout);
  if (Leads(devices.self, clique, receive.peer)) {
    ranks[clique];
    leader.Add(clock, clique, NameIn(clique, receive), receive.spec.bytes, priority, direct);
    leader.Hold(clique, HasMore(receive.peer));
  } else {
    Send(receive.peer, HandOver{receive.partner, priority, direct});
  }
}

bool TransferEngine::Impl::OnHandOver(PeerId peer, const HandOver& message) {
  Posted* send = FindSendTo(peer, message.transfer);
  const bool before = send != nullptr && (send->handed || send->outstanding || send->cut > 0 ||
                                          send->route == Route::kNccl);
  if (send == nullptr || !send->spec.defined || send->spec.prepared || before) return false;
  const Clique clique = CliqueOf(send->spec.key);
  if (!Leads(devices.self, clique, peer) || !routes.MakesGroups(peer, clique)) return false;
  LeaveMatcher(*send);
  send->stage = Stage::kMatched;
  send->handed = true;
  ranks[clique];
  const bool added = leader.Add(clock, clique, NameIn(clique, *send), send->spec.bytes,
                                message.priority, message.direct);
  leader.Hold(clique, HasMore(peer));
  return added;
}

void TransferEngine::Impl::OnMore(PeerId peer, bool more) {
  if (peer.value() >= peers.size() || (!more && !HasMore(peer))) return;
  peers[peer.value()].more_until = more ? clock + options.batch.age : absl::InfinitePast();
  for (const auto& [clique, rank] : ranks) {
    if (OwnerOf(clique.high) == peer) leader.Hold(clique, more);
  }
}

void TransferEngine::Impl::TakeRest(Posted& half) {
  half.handed = false;
  const Clique clique = CliqueOf(half.spec.key);
  if (Leads(devices.self, clique, half.peer)) {
    leader.Remove(clique, NameIn(clique, half));
  } else if (peers[half.peer.value()].up) {
    Send(half.peer, TakeBack{half.partner});
  }
}

bool TransferEngine::Impl::OnTakeBack(PeerId peer, const TakeBack& message) {
  Posted* send = FindSendTo(peer, message.transfer);
  // Its last chunk may have been cut meanwhile.
  if (send == nullptr || (!send->handed && send->chunks_out == 0)) return false;
  if (send->handed) TakeRest(*send);
  return true;
}

void TransferEngine::Impl::DropRest(Posted& receive, absl::Status why) {
  if (!receive.why.ok()) return;
  receive.why = std::move(why);
  if (receive.handed) TakeRest(receive);
  Settle(receive.id);
}

Posted* TransferEngine::Impl::HalfFor(const GroupRecord& group, const Chunk& chunk) const {
  Posted* half = nullptr;
  if (chunk.pair.to_low == group.leads) {
    const Offered* offered = FindOffer(group.peer, chunk.pair.transfer);
    half = offered == nullptr ? nullptr : Find(offered->receive);
    if (half != nullptr && (!half->handed || !half->why.ok())) return nullptr;
  } else {
    half = FindSendTo(group.peer, chunk.pair.transfer);
    const bool other_route = half != nullptr && half->outstanding && half->chunks_out == 0;
    if (half != nullptr && (!half->spec.defined || half->spec.prepared || other_route)) {
      return nullptr;
    }
  }
  if (half == nullptr || half->outcome || CliqueOf(half->spec.key) != group.clique ||
      chunk.offset != half->cut || chunk.bytes > half->spec.bytes - half->cut) {
    return nullptr;
  }
  return half;
}

bool TransferEngine::Impl::TakeChunk(GroupRecord& group, const Chunk& chunk) {
  if (chunk.pair.slot != 0) {
    const uint64_t bundle = BundleFor(group, chunk);
    if (bundle != 0) PinBundle(group, bundle, chunk);
    return bundle != 0;
  }
  Posted* half = HalfFor(group, chunk);
  if (half != nullptr) Pin(group, *half, chunk);
  return half != nullptr;
}

void TransferEngine::Impl::Pin(GroupRecord& group, Posted& half, const Chunk& chunk) {
  group.parts.push_back({half.id, 0, chunk});
  group.bytes += chunk.bytes;
  LeaveMatcher(half);
  half.stage = Stage::kLaunched;
  half.route = Route::kNccl;
  half.outstanding = true;
  half.cut += chunk.bytes;
  if (half.cut == half.spec.bytes) half.handed = false;  // the leader has no more of it
  ++half.chunks_out;
}

void TransferEngine::Impl::Unpin(const GroupRecord::Part& part, uint64_t moved,
                                 const absl::Status& status) {
  if (part.bundle != 0) {
    Bundle& bundle = bundles.at(part.bundle);
    --bundle.chunks_out;
    bundle.moved += moved;
    bundle.why.Update(status);
    return;
  }
  Posted* half = Find(part.half);
  FERRY_CHECK(half != nullptr && half->chunks_out > 0);
  half->outstanding = --half->chunks_out > 0;
  half->moved += moved;
  if (status.ok() || half->spec.side == Side::kSend || !half->why.ok()) return;
  half->why = status;
  if (half->handed) TakeRest(*half);
}

void TransferEngine::Impl::Settle(TransferId id) {
  Posted* half = Find(id);
  if (half == nullptr || half->outstanding) return;
  if (half->outcome) return End(*half, *std::move(half->outcome));
  if (half->spec.side == Side::kSend) {
    if (half->next_go == nullptr) return;  // the destination tells how it ends
    const std::unique_ptr<Go> go = std::move(half->next_go);
    return LaunchSend(*half, *go);
  }
  const uint64_t bytes = half->spec.bytes;
  if (half->moved == bytes && (half->why.ok() || bytes > 0)) {
    OnReceiveDone(*half, absl::OkStatus());
  } else if (!half->why.ok()) {
    const absl::Status why = half->why;
    OnReceiveDone(*half, why);
  }
}

void TransferEngine::Impl::Settle(const std::vector<GroupRecord::Part>& parts,
                                  std::vector<TransferId>* left) {
  for (const GroupRecord::Part& part : parts) {
    if (part.bundle != 0) {
      SettleBundle(part.bundle);
    } else if (left != nullptr) {
      left->push_back(part.half);
    } else {
      Settle(part.half);
    }
  }
}

// --- Lanes.

void TransferEngine::Impl::RunGroups() {
  while (true) {
    const GroupLeader::Due due = leader.TakeDue(clock);
    for (const auto& [clique, attempt] : due.close) CloseIdle(clique, attempt);
    for (const auto& [clique, attempt] : due.open) OpenAttempt(clique, attempt);
    for (const Clique& clique : due.ask) {
      const uint64_t id = next_group++;
      GroupRecord& group = groups[id];
      group.clique = clique;
      group.peer = OwnerOf(clique.high);
      group.leads = true;
      lanes.Ask(clique.low, id);
    }
    const std::vector<uint64_t> granted = lanes.TakeGranted();
    if (granted.empty() && due.close.empty()) return;
    for (uint64_t id : granted) OnLaneGranted(id);
  }
}

void TransferEngine::Impl::OnLaneGranted(uint64_t id) {
  GroupRecord& group = groups.find(id)->second;
  if (group.leads) return CutGroup(id, group);
  Send(group.peer, Granted{group.clique, group.attempt, group.number, std::move(group.refused)});
  if (group.parts.empty()) {
    EraseGroup(id);
  } else {
    LaunchGroup(id, group);
  }
}

uint64_t TransferEngine::Impl::RoomFor(const Clique& clique) const {
  return static_cast<uint64_t>(ranks.at(clique).bytes_per_second *
                               absl::ToDoubleSeconds(options.group_time));
}

void TransferEngine::Impl::CutGroup(uint64_t id, GroupRecord& group) {
  std::optional<GroupLeader::Numbered> cut = leader.Cut(group.clique, RoomFor(group.clique));
  if (!cut) {
    EraseGroup(id);
    return;
  }
  group.stage = GroupRecord::Stage::kGranting;
  group.attempt = cut->attempt;
  group.number = cut->number;
  Group message{group.clique, group.attempt, group.number, std::move(cut->chunks)};
  for (const Chunk& chunk : message.chunks) {
    FERRY_CHECK(TakeChunk(group, chunk));  // what ends leaves the batcher
  }
  FlightRecorder::Get().Record("group.cut", group.number, group.peer.value(),
                               message.chunks.size());
  Send(group.peer, std::move(message));
  OrderAhead(id, group);
  SetGroupTimer(id, group, options.grant_deadline);
}

TransferEngine::Impl::Groups::iterator TransferEngine::Impl::FindLed(PeerId follower,
                                                                     const Clique& clique,
                                                                     uint64_t number,
                                                                     GroupRecord::Stage stage) {
  return std::find_if(groups.begin(), groups.end(), [&](const auto& candidate) {
    const GroupRecord& group = candidate.second;
    return group.peer == follower && group.leads && group.stage == stage &&
           group.clique == clique && group.number == number;
  });
}

bool TransferEngine::Impl::OnGroup(PeerId peer, const Group& message) {
  if (!Leads(peer, message.clique, devices.self) || !routes.MakesGroups(peer, message.clique) ||
      message.chunks.empty()) {
    return false;
  }
  const bool firings = message.chunks[0].pair.slot != 0;
  if (message.chunks.size() > (firings ? kMaxGroupFirings : kMaxGroupChunks)) return false;
  for (const Chunk& chunk : message.chunks) {
    if ((chunk.pair.slot != 0) != firings) return false;
  }
  Rank& rank = ranks[message.clique];
  if (!rank.open || message.attempt != rank.attempt || message.number <= rank.number) return false;
  for (const auto& [id, group] : groups) {
    if (group.clique == message.clique && group.stage == GroupRecord::Stage::kAsking) return false;
  }
  rank.number = message.number;
  const uint64_t id = next_group++;
  GroupRecord& group = groups[id];
  group.clique = message.clique;
  group.peer = peer;
  group.attempt = message.attempt;
  group.number = message.number;
  for (uint32_t i = 0; i < message.chunks.size(); ++i) {
    if (!TakeChunk(group, message.chunks[i])) group.refused.push_back(i);
  }
  lanes.Ask(message.clique.high, id);
  return true;
}

bool TransferEngine::Impl::OnGranted(PeerId peer, const Granted& message) {
  const auto entry = FindLed(peer, message.clique, message.number, GroupRecord::Stage::kGranting);
  if (entry == groups.end()) return false;
  GroupRecord& group = entry->second;
  const auto& refused = message.refused;
  if (std::adjacent_find(refused.begin(), refused.end(), std::greater_equal<>()) != refused.end() ||
      (!refused.empty() && refused.back() >= group.parts.size())) {
    return false;
  }
  std::vector<GroupRecord::Part> dropped;
  for (auto index = refused.rbegin(); index != refused.rend(); ++index) {
    dropped.push_back(group.parts[*index]);
    group.bytes -= dropped.back().chunk.bytes;
    group.parts.erase(group.parts.begin() + *index);
  }
  if (group.parts.empty()) {
    EraseGroup(entry->first);
  } else {
    LaunchGroup(entry->first, group);
  }
  for (const GroupRecord::Part& part : dropped) {
    // A destination may have ended the pair. A source has it until it is told. Who has no firing
    // says elsewhere why.
    Unpin(part, 0,
          part.chunk.pair.to_low && part.bundle == 0
              ? Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                      absl::StrCat(NodeName(peer), " does not know the send that it has offered"))
              : absl::OkStatus());
  }
  Settle(dropped);
  return true;
}

std::vector<GroupChunk> TransferEngine::Impl::ChunksOf(const GroupRecord& group) const {
  std::vector<GroupChunk> chunks;
  chunks.reserve(group.parts.size());
  for (const GroupRecord::Part& part : group.parts) {
    const bool receives = part.chunk.pair.to_low == group.leads;
    chunks.push_back({part.half, receives ? Side::kReceive : Side::kSend, part.chunk.offset,
                      part.chunk.bytes, part.bundle == 0 ? Find(part.half)->spec.layout : Layout(),
                      part.bundle});
  }
  return chunks;
}

void TransferEngine::Impl::LaunchGroup(uint64_t id, GroupRecord& group) {
  StopGroupTimer(id, group);
  group.stage = GroupRecord::Stage::kLaunched;
  lanes.Commit(LaneOf(group), id);
  if (lanes.Head(LaneOf(group)) == id) BeginGroup(id, group);
  FlightRecorder::Get().Record("group.launch", group.number, group.peer.value(), group.attempt);
  out.groups.emplace_back(GroupLaunch{id, group.clique, group.attempt, group.number, group.peer,
                                      LaneOf(group), ChunksOf(group)});
}

void TransferEngine::Impl::BeginGroup(uint64_t id, GroupRecord& group) {
  group.began = clock;
  SetGroupTimer(id, group, options.group_deadline);
}

void TransferEngine::Impl::MeasureGroup(const GroupRecord& group) {
  // Of less than that the way there and back takes most of the time.
  if (group.bytes < options.batch.group_bytes / 2 || clock <= group.began) return;
  double& rate = ranks.at(group.clique).bytes_per_second;
  const auto bytes = static_cast<double>(group.bytes);
  double now = bytes / absl::ToDoubleSeconds(clock - group.began);
  if (rate == 0) rate = now;
  // Who was told late of the end of the group before has seen only a part of this one.
  now = std::min(now, 2 * rate);
  const double before = 8 * static_cast<double>(options.batch.group_bytes);
  rate = (rate * before + now * bytes) / (before + bytes);
}

GroupRecord TransferEngine::Impl::EraseGroup(uint64_t id) {
  auto entry = groups.find(id);
  StopGroupTimer(id, entry->second);
  GroupRecord group = std::move(entry->second);
  groups.erase(entry);
  const GlobalDeviceId lane = LaneOf(group);
  lanes.Release(lane, id);
  if (std::optional<uint64_t> head = lanes.Head(lane)) {  // its time begins now
    GroupRecord& next = groups.find(*head)->second;
    if (next.timer == kNever && next.why.ok() && !next.late) BeginGroup(*head, next);
  }
  if (group.leads && group.stage != GroupRecord::Stage::kAsking) leader.OnOver(group.clique);
  return group;
}

// --- Endings.

void TransferEngine::Impl::OnGroupDone(uint64_t id, const absl::Status& status,
                                       std::vector<TransferId>* left) {
  auto entry = groups.find(id);
  if (entry == groups.end() || entry->second.stage != GroupRecord::Stage::kLaunched) return;
  const GroupRecord group = EraseGroup(id);
  const absl::Status why = status.ok() || group.why.ok() ? status : group.why;
  if (status.ok() && group.why.ok()) {
    MeasureGroup(group);
    ObserveSms(group);
    Rank& rank = ranks.at(group.clique);
    if (group.late && rank.attempt == group.attempt) rank.failing = absl::OkStatus();
  }
  for (const GroupRecord::Part& part : group.parts) {
    Unpin(part, status.ok() ? part.chunk.bytes : 0, why);
  }
  if (!status.ok() && group.why.ok()) {
    FailAttempt(group.clique, group.attempt, group.number, status);
  }
  Settle(group.parts, left);
  CloseQuiet(group.clique);
}

void TransferEngine::Impl::GroupsPeerLost(PeerId peer, const absl::Status& why) {
  const absl::Status lost = Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                                  absl::StrCat("the link to ", NodeName(peer),
                                               " was lost: ", absl::string_view(why.message())));
  for (const auto& [clique, rank] : ranks) {
    if (OwnerOf(clique.high) == peer) leader.Drop(clique);
  }
  for (auto& [number, bundle] : bundles) {
    if (bundle.peer == peer) BreakBundle(bundle);
  }
  std::vector<uint64_t> unlaunched;
  for (auto& [id, group] : groups) {
    if (group.peer != peer) continue;
    if (group.stage != GroupRecord::Stage::kLaunched) unlaunched.push_back(id);
    if (group.stage == GroupRecord::Stage::kLaunched && group.why.ok()) {
      group.why = lost;
      StopGroupTimer(id, group);
    }
  }
  // Their halves end with all the others of this peer.
  for (uint64_t id : unlaunched) {
    for (const GroupRecord::Part& part : EraseGroup(id).parts) {
      Unpin(part, 0, absl::OkStatus());
      if (part.bundle != 0) SettleBundle(part.bundle);
    }
  }
  for (auto entry = ranks.begin(); entry != ranks.end();) {
    const auto& [clique, rank] = *entry;
    if (OwnerOf(clique.low) != peer && OwnerOf(clique.high) != peer) {
      ++entry;
      continue;
    }
    if (rank.open) out.groups.emplace_back(CommunicatorEnd{clique, rank.attempt, lost});
    for (const uint32_t attempt : rank.closing) {
      out.groups.emplace_back(CommunicatorEnd{clique, attempt, lost});
    }
    StopOpenTimer(clique, entry->second);
    entry = ranks.erase(entry);
  }
}

// --- Time.

void TransferEngine::Impl::SetGroupTimer(uint64_t id, GroupRecord& group, absl::Duration after) {
  group.timer = absl::ToUnixNanos(clock + after);
  group_timers.emplace(group.timer, id);
}

void TransferEngine::Impl::StopGroupTimer(uint64_t id, GroupRecord& group) {
  if (group.timer == kNever) return;
  group_timers.erase({group.timer, id});
  group.timer = kNever;
}

void TransferEngine::Impl::OnGroupTimers() {
  const int64_t nanos = absl::ToUnixNanos(clock);
  while (!group_timers.empty() && group_timers.begin()->first <= nanos) {
    const uint64_t id = group_timers.begin()->second;
    GroupRecord& group = groups.find(id)->second;
    StopGroupTimer(id, group);
    const bool launched = group.stage == GroupRecord::Stage::kLaunched;
    const absl::Status status = Error(
        absl::StatusCode::kDeadlineExceeded, Reason::kExecuting,
        absl::StrCat("group ", group.number, " of ", Describe(group.clique),
                     launched ? ": not over within " : ": the other lane was not granted within ",
                     DurationText(launched ? options.group_deadline : options.grant_deadline)));
    const bool first = launched && !std::exchange(group.late, true);
    if (first && group.leads && !group.late_there) {
      // At its follower it may be behind one that hangs with somebody else, which is no fault of
      // its own: the follower says when it is late there too. But not if it has ended there.
      SetGroupTimer(id, group, options.group_deadline);
      continue;
    }
    FailAttempt(Clique(group.clique), group.attempt, group.number, status);
  }
}

}  // namespace ferry
