// SPDX-License-Identifier: Apache-2.0
// Loads and groups: how a load gets into groups, how a group gets both lanes, and what becomes of
// its loads when it is over.
#include "transfer/clique/cliques.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {
namespace {

// A group of so few bytes that took so much longer than a transfer does had to wait for SMs.
constexpr uint64_t kTellingBytes = RouteEstimate::kLatencyBytes;
constexpr absl::Duration kLateGroup = absl::Milliseconds(1);

}  // namespace

Cliques::Cliques(const CliqueContext& context, FindLoad find_load)
    : context_(context),
      find_load_(std::move(find_load)),
      leader_(context.options.cutting),
      comms_(context_, leader_),
      bundles_(context_, leader_, comms_),
      groups_(context_),
      attempt_ends_(context_, leader_, comms_, groups_,
                    {.drop_group =
                         [this](uint64_t id, const absl::Status& why) {
                           const std::unique_ptr<GroupRecord> group = Erase(id);
                           for (const GroupRecord::Carried& carried : group->carried) {
                             Unpin(carried, 0, why);
                           }
                           Settle(group->carried);
                         },
                     .unavailable =
                         [this](const Clique& clique, const absl::Status& why) {
                           events_.push_back(CliqueUnavailable{clique, why});
                         }}) {}

// --- Links, and time.

void Cliques::OnPeerLost(PeerId peer, const absl::Status& why) {
  home_.Check();
  peers_.erase(peer);
  const absl::Status lost = Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                                  absl::StrCat("the link to ", NodeName(context_.devices, peer),
                                               " was lost: ", absl::string_view(why.message())));
  for (const auto& [clique, comm] : comms_.all()) {
    if (context_.OwnerOf(clique.high) == peer) leader_.Drop(clique);
  }
  bundles_.OnPeerLost(peer);
  std::vector<uint64_t> unlaunched;
  for (GroupRecord* const group :
       groups_.All([&](const GroupRecord& group) { return group.peer == peer; })) {
    if (!group->launched()) {
      unlaunched.push_back(group->id);
    } else if (group->why.ok()) {
      group->why = lost;
      groups_.StopTimer(*group);
    }
  }
  for (const uint64_t id : unlaunched) {  // their halves end with all the others of this peer
    const std::unique_ptr<GroupRecord> group = Erase(id);
    for (const GroupRecord::Carried& carried : group->carried) {
      Unpin(carried, 0, absl::OkStatus());
      if (Bundle* const bundle = bundles_.Find(carried.load->bundle)) {
        bundles_.Settle(*bundle).IgnoreError();  // it is broken
      }
    }
  }
  comms_.Forget(peer, lost);
}

absl::Time Cliques::NextTime() const {
  home_.Check();
  const int64_t nanos = std::min(groups_.NextTimer(), comms_.NextTimer());
  return std::min(nanos == Deadlines::kNever ? absl::InfiniteFuture() : absl::FromUnixNanos(nanos),
                  leader_.NextDue());
}

// --- Loads.

bool Cliques::Carry(Load& load, int32_t priority, bool unstaged) {
  home_.Check();
  load.handed = true;
  if (!context_.Leads(context_.devices.self, load.clique, load.peer)) {
    context_.Send(load.peer, HandOver{load.name.transfer, priority, unstaged});
    return true;
  }
  comms_.Of(load.clique);
  const bool added =
      leader_.Add(context_.now, load.clique, load.name, load.bytes, priority, unstaged);
  leader_.Hold(load.clique, HasMore(load.peer));
  return added;
}

void Cliques::OnMore(PeerId peer, bool more) {
  home_.Check();
  if (!more && !HasMore(peer)) return;
  peers_[peer].more_until =
      more ? context_.now + context_.options.cutting.age : absl::InfinitePast();
  for (const auto& [clique, comm] : comms_.all()) {
    if (context_.OwnerOf(clique.high) == peer) leader_.Hold(clique, more);
  }
}

bool Cliques::HasMore(PeerId peer) const {
  home_.Check();
  const auto entry = peers_.find(peer);
  return entry != peers_.end() && context_.now < entry->second.more_until;
}

void Cliques::TakeRest(Load& load) {
  home_.Check();
  if (!std::exchange(load.handed, false)) return;
  if (context_.Leads(context_.devices.self, load.clique, load.peer)) {
    leader_.Remove(load.clique, load.name);
  } else if (peers_[load.peer].up) {
    context_.Send(load.peer, TakeBack{load.name.transfer});
  }
}

bool Cliques::Drop(Load& load, absl::Status why) {
  home_.Check();
  if (!load.why.ok()) return false;
  load.why = std::move(why);
  TakeRest(load);
  return true;
}

void Cliques::Forget(Load& load) {
  home_.Check();
  TakeRest(load);
  FERRY_CHECK(!load.pinned());
}

Load* Cliques::ToCarry(const GroupRecord& group, const Chunk& chunk) {
  if (chunk.pair.slot != 0) return bundles_.ToCarry(group.peer, group.clique, chunk);
  const bool receives = chunk.pair.to_low == group.leads;
  Load* const load = find_load_(group.peer, group.clique, chunk.pair, receives);
  if (load == nullptr || (receives && (!load->handed || !load->why.ok())) ||
      chunk.offset != load->cut || chunk.bytes > load->bytes - load->cut) {
    return nullptr;
  }
  return load;
}

bool Cliques::Pin(GroupRecord& group, const Chunk& chunk) {
  Load* const load = ToCarry(group, chunk);
  if (load == nullptr) return false;
  group.carried.push_back({load, chunk});
  group.bytes += chunk.bytes;
  load->cut += chunk.bytes;
  ++load->chunks_out;
  if (Bundle* const bundle = bundles_.Find(load->bundle)) {
    bundle->begun = true;
    return true;
  }
  if (load->cut == load->bytes) load->handed = false;  // the leader has no more of it
  events_.push_back(LoadPinned{load->half});
  return true;
}

void Cliques::Unpin(const GroupRecord::Carried& carried, uint64_t moved,
                    const absl::Status& status) {
  Load& load = *carried.load;
  FERRY_CHECK(load.chunks_out > 0);
  --load.chunks_out;
  load.moved += moved;
  if (load.bundle != 0) {
    load.why.Update(status);
  } else if (!status.ok() && load.receives) {
    Drop(load, status);
  }
}

void Cliques::Settle(const std::vector<GroupRecord::Carried>& all) {
  for (const GroupRecord::Carried& carried : all) {
    if (carried.load->pinned()) continue;
    if (carried.load->bundle != 0) {
      events_.push_back(FiringSettled{carried.load->bundle});
    } else {
      events_.push_back(LoadSettled{carried.load->half});
    }
  }
}

// --- Lanes.

void Cliques::Run() {
  home_.Check();
  while (true) {
    const GroupLeader::Due due = leader_.TakeDue(context_.now);
    for (const auto& [clique, attempt] : due.close) attempt_ends_.CloseIdle(clique, attempt);
    for (const auto& [clique, attempt] : due.open) comms_.Open(clique, attempt);
    for (const Clique& clique : due.ask) {
      groups_.Ask(groups_.Add(clique, context_.OwnerOf(clique.high), /*leads=*/true));
    }
    const std::vector<GroupRecord*> granted = groups_.TakeGranted();
    if (granted.empty() && due.close.empty()) return;
    for (GroupRecord* const group : granted) OnLaneGranted(*group);
  }
}

void Cliques::OnLaneGranted(GroupRecord& group) {
  if (group.leads) return Cut(group);
  context_.Send(group.peer,
                Granted{group.clique, group.attempt, group.number, std::move(group.refused)});
  if (group.carried.empty()) {
    Erase(group.id);
  } else {
    Launch(group);
  }
}

uint64_t Cliques::RoomFor(const Clique& clique) const {
  return static_cast<uint64_t>(comms_.Find(clique)->bytes_per_second *
                               absl::ToDoubleSeconds(context_.group_time));
}

void Cliques::Cut(GroupRecord& group) {
  std::optional<GroupLeader::Numbered> cut = leader_.Cut(group.clique, RoomFor(group.clique));
  if (!cut) {
    Erase(group.id);
    return;
  }
  group.state = GroupRecord::State::kGranting;
  group.attempt = cut->attempt;
  group.number = cut->number;
  Group message{group.clique, group.attempt, group.number, std::move(cut->chunks)};
  for (const Chunk& chunk : message.chunks) {
    FERRY_CHECK(Pin(group, chunk));  // what ends leaves the cutter
  }
  FlightRecorder::Get().Record("group.cut", group.number, group.peer.value(),
                               message.chunks.size());
  context_.Send(group.peer, std::move(message));
  OrderAhead(group);
  groups_.SetTimer(group, context_.options.grant_deadline);
}

void Cliques::OrderAhead(const GroupRecord& group) {
  const bool gathers = std::any_of(
      group.carried.begin(), group.carried.end(),
      [&](const GroupRecord::Carried& carried) { return bundles_.Gathers(*carried.load); });
  if (!gathers || groups_.LaneIsBusy(group.clique.low)) return;  // which is in no hurry
  FlightRecorder::Get().Record("group.ahead", group.number, group.peer.value(), group.attempt);
  context_.out.groups.emplace_back(
      GroupAhead{group.id, group.clique, group.attempt, ChunksOf(group)});
}

bool Cliques::OnGroup(PeerId peer, const Group& message) {
  home_.Check();
  if (!context_.LedBy(peer, message.clique) || message.chunks.empty()) return false;
  const bool firings = message.chunks[0].pair.slot != 0;
  if (message.chunks.size() > (firings ? kMaxGroupFirings : kMaxGroupChunks)) return false;
  for (const Chunk& chunk : message.chunks) {
    if ((chunk.pair.slot != 0) != firings) return false;
  }
  CommRecord& comm = comms_.Of(message.clique);
  if (!comm.ordered || message.attempt != comm.attempt || message.number <= comm.number)
    return false;
  if (groups_.Any([&](const GroupRecord& group) {
        return group.clique == message.clique && group.state == GroupRecord::State::kAsking;
      })) {
    return false;
  }
  comm.number = message.number;
  GroupRecord& group = groups_.Add(message.clique, peer, /*leads=*/false);
  group.attempt = message.attempt;
  group.number = message.number;
  for (uint32_t i = 0; i < message.chunks.size(); ++i) {
    if (!Pin(group, message.chunks[i])) group.refused.push_back(i);
  }
  groups_.Ask(group);
  return true;
}

bool Cliques::OnGranted(PeerId peer, const Granted& message) {
  home_.Check();
  GroupRecord* const found =
      groups_.FindLed(peer, message.clique, message.number, GroupRecord::State::kGranting);
  if (found == nullptr) return false;
  GroupRecord& group = *found;
  const auto& refused = message.refused;
  if (std::adjacent_find(refused.begin(), refused.end(), std::greater_equal<>()) != refused.end() ||
      (!refused.empty() && refused.back() >= group.carried.size())) {
    return false;
  }
  std::vector<GroupRecord::Carried> dropped;
  for (auto index = refused.rbegin(); index != refused.rend(); ++index) {
    dropped.push_back(group.carried[*index]);
    group.bytes -= dropped.back().chunk.bytes;
    group.carried.erase(group.carried.begin() + *index);
  }
  if (group.carried.empty()) {
    Erase(group.id);
  } else {
    Launch(group);
  }
  for (const GroupRecord::Carried& carried : dropped) {
    // A destination may have ended the pair. A source has it until it is told. Who has no firing
    // says elsewhere why.
    const bool ours = carried.chunk.pair.to_low && carried.load->bundle == 0;
    Unpin(carried, 0,
          ours ? Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                       absl::StrCat(NodeName(context_.devices, peer),
                                    " does not know the send that it has offered"))
               : absl::OkStatus());
  }
  Settle(dropped);
  return true;
}

std::vector<GroupChunk> Cliques::ChunksOf(const GroupRecord& group) {
  std::vector<GroupChunk> chunks;
  chunks.reserve(group.carried.size());
  for (const auto& [load, chunk] : group.carried) {
    chunks.push_back({load->half, load->receives ? Side::kReceive : Side::kSend, chunk.offset,
                      chunk.bytes, load->layout != nullptr ? *load->layout : Layout(),
                      load->bundle});
  }
  return chunks;
}

void Cliques::Launch(GroupRecord& group) {
  groups_.Launch(group);
  FlightRecorder::Get().Record("group.launch", group.number, group.peer.value(), group.attempt);
  context_.out.groups.emplace_back(GroupLaunch{group.id, group.clique, group.attempt, group.number,
                                               group.peer, group.lane(), ChunksOf(group)});
}

std::unique_ptr<GroupRecord> Cliques::Erase(uint64_t id) {
  std::unique_ptr<GroupRecord> group = groups_.Erase(id);
  if (group->leads && group->state != GroupRecord::State::kAsking) leader_.OnOver(group->clique);
  return group;
}

// --- A group is over.

std::optional<Clique> Cliques::OnGroupDone(uint64_t id, const absl::Status& status) {
  home_.Check();
  const GroupRecord* const found = groups_.Find(id);
  if (found == nullptr || !found->launched()) return std::nullopt;
  const std::unique_ptr<GroupRecord> group = Erase(id);
  const absl::Status why = status.ok() || group->why.ok() ? status : group->why;
  if (status.ok() && group->why.ok()) {
    MeasureSpeed(*group);
    MeasureSms(*group);
    CommRecord& comm = *comms_.Find(group->clique);
    if (group->late && comm.attempt == group->attempt) comm.failing = absl::OkStatus();
  }
  for (const GroupRecord::Carried& carried : group->carried) {
    Unpin(carried, status.ok() ? carried.chunk.bytes : 0, why);
  }
  if (!status.ok() && group->why.ok()) {
    attempt_ends_.Fail(group->clique, group->attempt, group->number, status);
  }
  Settle(group->carried);
  return group->clique;
}

void Cliques::MeasureSpeed(const GroupRecord& group) {
  // Of less than that the way there and back takes most of the time.
  const uint64_t group_bytes = context_.options.cutting.group_bytes;
  if (group.bytes < group_bytes / 2 || context_.now <= group.began) return;
  double& rate = comms_.Find(group.clique)->bytes_per_second;
  const auto bytes = static_cast<double>(group.bytes);
  double now = bytes / absl::ToDoubleSeconds(context_.now - group.began);
  if (rate == 0) rate = now;
  // Who was told late of the end of the group before has seen only a part of this one.
  now = std::min(now, 2 * rate);
  const double before = 8 * static_cast<double>(group_bytes);
  rate = (rate * before + now * bytes) / (before + bytes);
}

void Cliques::MeasureSms(const GroupRecord& group) {
  if (group.bytes > kTellingBytes) return;
  const std::optional<absl::Duration> usual = context_.routes.UsualGroup(group.peer, group.clique);
  if (!usual) return;  // wherever the peer is
  comms_.Find(group.clique)
      ->sms.OnKernelOver(context_.now - group.began > *usual + kLateGroup, context_.now);
}

}  // namespace ferry
