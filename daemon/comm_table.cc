// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm_table.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {

CommTable::CommTable(Executor& control, LocalDevices& devices, NcclOptions options, Hooks hooks)
    : control_(control),
      devices_(devices),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      cache_(options_.bytes_per_gpu, options_.idle) {}

CommTable::~CommTable() = default;

std::string CommTable::NameOf(const Entry& entry) const {
  return absl::StrCat("attempt ", entry.attempt, " of the communicator of ",
                      Describe(entry.clique));
}

void CommTable::Open(CommunicatorOpen order) {
  home_.Check();
  CommRow row;
  row.clique = order.clique;
  row.low = hooks_.incarnation(order.clique.low);
  row.high = hooks_.incarnation(order.clique.high);
  row.attempt = order.attempt;
  row.device = order.device;
  const CommCache::Id id = cache_.Open(control_.Now(), row);
  Entry& entry = entries_[id];
  entry.id = id;
  entry.clique = order.clique;
  entry.attempt = order.attempt;
  entry.device = devices_.Find(order.device);
  FERRY_CHECK(entry.device != nullptr);
  entry.transport = options_.transports.at(order.device);
  const bool leads = order.device == order.clique.low;
  // The other end computes the same number, from what we have told it.
  const int max_ctas = AgreedCtas(entry.device->max_ctas,
                                  hooks_.max_ctas(leads ? order.clique.high : order.clique.low));
  entry.communicator =
      std::make_unique<Communicator>(*options_.api, *entry.device->gpu, leads ? 0 : 1, max_ctas);
  entry.unique_id = std::move(order.unique_id);
  FERRY_CHECK(in_use_.emplace(std::make_pair(order.clique, order.attempt), id).second);
  ++streams_[entry.device].users;
  next_look_ = absl::InfinitePast();
  OpenWaiting();
}

void CommTable::OpenWaiting() {
  for (const CommCache::Id id : cache_.TakeToOpen(control_.Now())) StartOpener(entries_.at(id));
}

void CommTable::StartOpener(Entry& entry) {
  FERRY_LOG(info, "comm.opening", LogFields("device", entry.device->id), "{}", NameOf(entry));
  entry.waiting = false;
  const bool makes_stream = !std::exchange(streams_[entry.device].made, true);
  threads_.Run("comm opener",
               [this, id = entry.id, makes_stream, device = entry.device,
                communicator = entry.communicator.get(), unique_id = entry.unique_id]() mutable {
                 absl::StatusOr<Communicator::Opened> opened =
                     OpenOnThread(id, *device, *communicator, makes_stream, std::move(unique_id));
                 control_.Post([this, id, opened = std::move(opened)]() mutable {
                   OnOpened(id, std::move(opened));
                 });
               });
}

absl::StatusOr<Communicator::Opened> CommTable::OpenOnThread(CommCache::Id id, LocalDevice& device,
                                                             Communicator& communicator,
                                                             bool makes_stream,
                                                             std::string unique_id) {
  if (makes_stream) {
    auto stream = CudaStream::Make(*device.gpu, NcclTransport::kStream);
    if (!stream.ok()) {
      control_.Post([this, id, &device, why = stream.status()] { OnNoStream(id, device, why); });
      return stream.status();
    }
    device.lane->Post(
        [transport = options_.transports.at(device.id), stream = *std::move(stream)]() mutable {
          transport->SetStream(std::move(stream));
        });
  }
  if (unique_id.empty()) {
    ASSIGN_OR_RETURN(unique_id, communicator.MakeId());
    control_.Post([this, id, unique_id] { OnId(id, unique_id); });
  }
  return communicator.Open(unique_id);
}

void CommTable::OnNoStream(CommCache::Id maker, LocalDevice& device, const absl::Status& why) {
  streams_[&device].made = false;
  for (auto& [id, entry] : entries_) {
    // Openings that began while the stream was being made count on it. The maker's own opening is
    // about to come back.
    if (id == maker || entry.device != &device || entry.waiting) continue;
    if (!entry.ended && entry.communicator->state() != Communicator::State::kEnded) {
      FailToOpen(entry, why);
    }
  }
}

void CommTable::FailToOpen(Entry& entry, const absl::Status& why) {
  entry.communicator->End();
  hooks_.failed(
      entry.clique, entry.attempt,
      Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable, why.message()));
}

void CommTable::OnId(CommCache::Id id, std::string unique_id) {
  const Entry& entry = entries_.at(id);
  if (!entry.ended) hooks_.made_id(entry.clique, entry.attempt, std::move(unique_id));
}

void CommTable::OnOpened(CommCache::Id id, absl::StatusOr<Communicator::Opened> opened) {
  Entry& entry = entries_.at(id);
  entry.opening = false;
  if (entry.ended) return GoOn(entry);
  // FailToOpen was called meanwhile, for want of a stream: the order to end it is on its way.
  if (entry.communicator->state() == Communicator::State::kEnded) return;
  if (opened.ok()) {
    const uint64_t bytes = cache_.OnOpened(control_.Now(), id, opened->bytes, opened->took);
    next_look_ = absl::InfinitePast();
    FERRY_LOG(info, "comm.open", LogFields("device", entry.device->id), "{}: {} bytes, took {}",
              NameOf(entry), bytes, DurationText(opened->took));
    return hooks_.opened(entry.clique, entry.attempt);
  }
  FailToOpen(entry, opened.status());
}

void CommTable::GatherAhead(const GroupAhead& order) {
  home_.Check();
  Entry& entry = entries_.at(in_use_.at(std::make_pair(order.clique, order.attempt)));
  GroupOp op{order.ticket, entry.communicator.get(), {}, {}};
  for (const GroupChunk& chunk : order.chunks) {
    op.firings.push_back({chunk.bundle, chunk.offset, chunk.bytes});
  }
  entry.device->lane->Post([transport = entry.transport, op = std::move(op)]() mutable {
    transport->GatherAhead(std::move(op));
  });
}

void CommTable::OnLetGo(const Communicator* communicator) {
  home_.Check();
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.communicator.get() == communicator;
  });
  FERRY_CHECK(found != entries_.end());  // destroyed only after its lane has let go
  found->second.let_go = true;
  GoOn(found->second);
}

void CommTable::Launch(const GroupLaunch& order, std::vector<GroupPart> parts) {
  home_.Check();
  Entry& entry = entries_.at(in_use_.at(std::make_pair(order.clique, order.attempt)));
  uint64_t bytes = 0;
  GroupOp op{order.ticket, entry.communicator.get(), std::move(parts), {}};
  for (const GroupChunk& chunk : order.chunks) {
    bytes += chunk.bytes;
    if (chunk.bundle != 0) op.firings.push_back({chunk.bundle, chunk.offset, chunk.bytes});
  }
  cache_.OnLaunch(control_.Now(), entry.id, bytes);
  ++entry.groups;
  groups_[order.ticket] = entry.id;
  entry.device->lane->Post([transport = entry.transport, op = std::move(op)]() mutable {
    transport->LaunchGroup(std::move(op));
  });
}

void CommTable::OnGroupsOver(std::vector<std::pair<uint64_t, absl::Status>> over) {
  home_.Check();
  for (const auto& [group, status] : over) {
    const auto launched = groups_.find(group);
    FERRY_CHECK(launched != groups_.end());
    Entry& entry = entries_.at(launched->second);
    groups_.erase(launched);
    --entry.groups;
    cache_.OnOver(control_.Now(), entry.id);
    if (cache_.beyond()) next_look_ = absl::InfinitePast();
    hooks_.group_over(group, status);
    GoOn(entry);
  }
}

void CommTable::OnFailed(const Communicator* communicator, const absl::Status& why) {
  home_.Check();
  for (const auto& [id, entry] : entries_) {
    if (entry.communicator.get() == communicator && !entry.ended) {
      return hooks_.failed(entry.clique, entry.attempt, why);
    }
  }
}

void CommTable::Closing(const CommunicatorClosing& order) {
  home_.Check();
  cache_.OnClosing(in_use_.at(std::make_pair(order.clique, order.attempt)));
}

void CommTable::End(const CommunicatorEnd& order) {
  home_.Check();
  const auto used = in_use_.find(std::make_pair(order.clique, order.attempt));
  FERRY_CHECK(used != in_use_.end());
  Entry& entry = entries_.at(used->second);
  in_use_.erase(used);
  entry.ended = true;
  if (entry.waiting) entry.opening = false;  // there is no opener to come back
  entry.why = order.status;
  entry.give_up = control_.Now() + kGiveUp;
  next_look_ = absl::InfinitePast();
  cache_.OnEnding(entry.id, std::string(order.status.message()));
  FERRY_LOG(info, order.status.ok() ? "comm.closing" : "comm.aborting",
            LogFields("device", entry.device->id), "{}{}", NameOf(entry),
            order.status.ok() ? "" : absl::StrCat(": ", order.status.message()));
  GoOn(entry);
}

void CommTable::GoOn(Entry& entry) {
  if (!entry.ended) return;
  // A communicator that is closed waits for its groups, but not for its opener, which may wait for
  // the other end.
  if (!entry.reaping && (!entry.why.ok() || entry.opening || entry.groups == 0)) {
    entry.reaping = true;
    entry.communicator->End();
    // The groups end by the lane, because the reaper may take half a second longer than they do.
    entry.device->lane->Post([transport = entry.transport, communicator = entry.communicator.get(),
                              why = entry.why] { transport->Ended(communicator, why); });
    threads_.Run("comm reaper", [this, id = entry.id, communicator = entry.communicator.get()] {
      communicator->Reap();
      control_.Post([this, id] { OnReaped(id); });
    });
  }
  if (!entry.reaped || entry.opening || entry.groups > 0 || !entry.let_go) return;
  FERRY_LOG(info, "comm.gone", LogFields("device", entry.device->id), "{}", NameOf(entry));
  cache_.OnGone(entry.id);
  next_look_ = absl::InfinitePast();  // the freed memory may be room for another
  LocalDevice* const device = entry.device;
  NcclTransport* const transport = entry.transport;
  entries_.erase(entry.id);
  LaneStream& stream = streams_[device];
  if (--stream.users > 0 || !std::exchange(stream.made, false)) return;
  device->lane->Post([device, transport] {
    // The stream is destroyed on the memory thread.
    device->memory->Post([stream = transport->TakeStream()] {});
  });
}

void CommTable::OnReaped(CommCache::Id id) {
  Entry& entry = entries_.at(id);
  entry.reaped = true;
  GoOn(entry);
}

absl::Time CommTable::OnTime(absl::Time now) {
  home_.Check();
  if (now < next_look_) return next_look_;
  OpenWaiting();
  for (const auto& [clique, busy] : cache_.TakeToEvict(now)) hooks_.evict(clique, busy);
  next_look_ = cache_.NextLook();
  for (const auto& [id, entry] : entries_) {
    if (entry.give_up <= now) GiveUp(NameOf(entry));
    next_look_ = std::min(next_look_, entry.give_up);
  }
  return next_look_;
}

void CommTable::GiveUp(const std::string& what) {
  const std::string text = absl::StrCat(what, " could not be ended within ", DurationText(kGiveUp),
                                        ": this process ends");
  FERRY_LOG(err, "daemon.comm_stuck", "{}", text);
  fprintf(stderr, "ferry: %s\nflight recorder, oldest first:\n%s", text.c_str(),
          FlightRecorder::Get().Dump().c_str());
  fflush(stderr);
  abort();
}

std::vector<const CommTable::Entry*> CommTable::StandingOf(const Clique& clique) const {
  std::vector<const Entry*> standing;
  for (const auto& [id, entry] : entries_) {
    if (entry.clique == clique && !entry.ended) standing.push_back(&entry);
  }
  return standing;
}

absl::StatusOr<uint32_t> CommTable::Named(const Clique& clique, uint32_t attempt) const {
  home_.Check();
  const auto standing = StandingOf(clique);
  if (attempt == 0 && standing.size() == 1) return standing[0]->attempt;
  for (const Entry* entry : standing) {
    if (entry->attempt == attempt) return attempt;
  }
  const std::string there = absl::StrCat(
      Describe(clique), " has here: ",
      standing.empty() ? "no communicator"
                       : absl::StrJoin(standing, ", ", [this](std::string* text, auto* entry) {
                           absl::StrAppend(text, "attempt ", entry->attempt, " (",
                                           CommStateName(cache_.StateOf(entry->id)), ")");
                         }));
  return attempt == 0 && !standing.empty()
             ? FieldError("attempt", absl::StrCat("name one attempt: ", there))
             : Error(absl::StatusCode::kNotFound, Reason::kIdStale, there);
}

absl::StatusOr<uint32_t> CommTable::NewestOf(const Clique& clique) const {
  home_.Check();
  const auto standing = StandingOf(clique);
  return standing.empty() ? Named(clique, 0) : standing.back()->attempt;
}

void CommTable::Stop() {
  home_.Check();
  for (auto& [id, entry] : entries_) {
    entry.communicator->End();
    if (std::exchange(entry.reaping, true)) continue;
    threads_.Run("comm reaper",
                 [communicator = entry.communicator.get()] { communicator->Reap(); });
  }
  if (!threads_.Join(kGiveUp)) GiveUp("a communicator");
}

}  // namespace ferry
