// SPDX-License-Identifier: Apache-2.0
// SessionTable's memory for jobs that send and receive by themselves. What one job has left is kept
// for the next. A request for which there is no room waits.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "daemon/session/session_table.h"

namespace ferry {
namespace {

constexpr size_t kHolders = 5;

}  // namespace

void SessionTable::DropOldestSpare(Session& session) {
  const ArenaId oldest = session.arenas().spare().front();
  session.arenas().spare().erase(session.arenas().spare().begin());
  LetGo(session.arenas().TakeOfJob(oldest));
}

absl::Status SessionTable::Reserve(Session& session, uint64_t bytes, size_t slots) {
  absl::Status reserved = session.arenas().Reserve(bytes, slots);
  uint64_t spare_bytes = 0;
  for (const ArenaId id : session.arenas().spare()) spare_bytes += FindArena(id)->bytes;
  const SessionUse& quota = session.limits().quota;
  const SessionUse use = session.use();
  const bool helps = bytes <= quota.bytes && use.bytes - spare_bytes <= quota.bytes - bytes &&
                     use.arenas - session.arenas().spare().size() + slots <= quota.arenas;
  while (!reserved.ok() && helps) {
    DropOldestSpare(session);
    reserved = session.arenas().Reserve(bytes, slots);
  }
  return reserved;
}

bool SessionTable::MakeRoomForJobs(uint64_t bytes) {
  const auto fits = [&] { return job_memory_ <= options_.job_memory - bytes; };
  for (auto& [id, session] : sessions_) {
    while (!fits() && !session->arenas().spare().empty()) DropOldestSpare(*session);
  }
  return fits();
}

absl::Status SessionTable::CheckJobMemory(Session& session, uint64_t bytes) {
  if (bytes > options_.job_memory) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                 absl::StrCat(bytes, " bytes: all jobs together may have ", options_.job_memory,
                              " bytes (limits.job_memory)"));
  }
  const SessionUse& quota = session.limits().quota;
  const ArenaUse& jobs = session.arenas().use_of_jobs();
  const SessionUse use = session.use();
  if (use.arenas - jobs.arenas < quota.arenas && bytes <= quota.bytes &&
      use.bytes - jobs.bytes <= quota.bytes - bytes) {
    return absl::OkStatus();
  }
  const absl::Status refused = Reserve(session, bytes);
  return WithText(refused,
                  absl::StrCat(refused.message(), "; largest holders: ", LargestHolders()));
}

std::optional<ArenaId> SessionTable::TakeSpare(Session& session, const LocalDevice& device,
                                               uint64_t bytes) {
  // The memory that was left last is tried first: it may be in a cache. Memory that is much larger
  // than needed is kept for a larger job.
  std::vector<ArenaId>& spare = session.arenas().spare();
  for (size_t i = spare.size(); i > 0; --i) {
    const ArenaId id = spare[i - 1];
    const Arena& arena = *FindArena(id);
    if (arena.device != device.id || arena.bytes < bytes || arena.bytes / 2 > bytes) continue;
    spare.erase(spare.begin() + static_cast<ptrdiff_t>(i - 1));
    return id;
  }
  return std::nullopt;
}

absl::StatusOr<ArenaId> SessionTable::TakeJobMemory(Session& session, LocalDevice& device,
                                                    uint64_t bytes, JobMemoryMapped mapped) {
  if (awaited_memory_.empty()) {
    if (const std::optional<ArenaId> left = TakeSpare(session, device, bytes)) return *left;
  }
  RETURN_IF_ERROR(CheckJobMemory(session, bytes));
  auto made = std::make_unique<Arena>();
  made->id = ArenaId(next_arena_++);
  made->session = session.id();
  made->device = device.id;
  made->of_job = true;
  made->awaited = true;
  const ArenaId id = made->id;
  arenas_[id] = &session.arenas().Add(std::move(made));
  awaited_memory_[session.id()].push_back({id, bytes, &device, std::move(mapped)});
  GrantJobMemory();
  return id;
}

void SessionTable::GrantJobMemory() {
  absl::flat_hash_set<SessionId> full;  // sessions whose quota is used up
  while (true) {
    // The first request of the session that was given memory longest ago. No request passes it by:
    // else a large one would wait for ever.
    Session* next = nullptr;
    for (const auto& [id, waits] : awaited_memory_) {
      Session* const session = Find(id);
      if (full.contains(id)) continue;
      if (next == nullptr || session->last_grant < next->last_grant) next = session;
    }
    if (next == nullptr) return;
    std::deque<AwaitedMemory>& waits = awaited_memory_.find(next->id())->second;
    AwaitedMemory& first = waits.front();
    if (const std::optional<ArenaId> left = TakeSpare(*next, *first.device, first.bytes)) {
      Adopt(first, *left);
    } else if (!Reserve(*next, first.bytes).ok()) {
      full.insert(next->id());
      continue;
    } else if (!MakeRoomForJobs(first.bytes)) {
      next->arenas().Unreserve(first.bytes);
      return;
    } else {
      Grant(first);
    }
    next->last_grant = ++grants_;
    waits.pop_front();
    if (waits.empty()) awaited_memory_.erase(next->id());
  }
}

void SessionTable::Count(Arena& arena, LocalDevice& device, uint64_t bytes) {
  Find(arena.session)->arenas().CountOfJob(arena, bytes);
  job_memory_ += bytes;
  ++device.arenas;
  device.arena_bytes += bytes;
  FlightRecorder::Get().Record("arena.job", arena.id.value(), arena.session.value(), bytes);
}

void SessionTable::Adopt(AwaitedMemory& wait, ArenaId spare) {
  Arena& arena = *FindArena(wait.arena);
  Session& session = *Find(arena.session);
  std::unique_ptr<Arena> left = session.arenas().TakeOfJob(spare);
  const uint64_t bytes = left->bytes;
  std::unique_ptr<DeviceMemory> mapping = std::move(left->mapping);
  LetGo(std::move(left));
  const absl::Status reserved = session.arenas().Reserve(bytes);
  FERRY_CHECK(reserved.ok());  // the session has just given back as much
  Count(arena, *wait.device, bytes);
  // Answers later, as if the memory were being mapped: the owner gives it back once, and not before
  // it was told.
  control_.Post([this, id = wait.arena, device = wait.device, mapping = std::move(mapping),
                 mapped = std::move(wait.mapped)]() mutable {
    OnJobMemory(id, *device, std::move(mapping), mapped);
  });
}

void SessionTable::Grant(AwaitedMemory& wait) {
  LocalDevice* const device = wait.device;
  Count(*FindArena(wait.arena), *device, wait.bytes);
  device->memory->Post([this, id = wait.arena, bytes = wait.bytes, device,
                        mapped = std::move(wait.mapped)]() mutable {
    MakePages(id, device, HostMapping::Create(bytes), std::move(mapped));
  });
}

void SessionTable::MakePages(ArenaId id, LocalDevice* device,
                             absl::StatusOr<std::unique_ptr<HostMapping>> mapping,
                             JobMemoryMapped mapped) {
  absl::StatusOr<bool> made = mapping.ok() ? (*mapping)->MakePages() : mapping.status();
  if (!made.ok()) mapping = made.status();
  if (made.ok() && !*made) {  // posts again, behind other tasks of this thread
    device->memory->Post(
        [this, id, device, mapping = std::move(mapping), mapped = std::move(mapped)]() mutable {
          MakePages(id, device, std::move(mapping), std::move(mapped));
        });
    return;
  }
  control_.Post(
      [this, id, device, mapping = std::move(mapping), mapped = std::move(mapped)]() mutable {
        OnJobMemory(id, *device, std::move(mapping), mapped);
      });
}

void SessionTable::OnJobMemory(ArenaId id, LocalDevice& device,
                               absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping,
                               const JobMemoryMapped& mapped) {
  Arena* const arena = FindArena(id);
  if (arena == nullptr) {  // the post was refused, and its session is gone
    if (mapping.ok()) device.memory->Post([gone = *std::move(mapping)] {});
    return;
  }
  if (mapping.ok()) arena->mapping = *std::move(mapping);
  mapped(id, mapping.status());
}

void SessionTable::ReturnJobMemory(ArenaId id) {
  Arena& arena = *FindArena(id);
  Session& session = *Find(arena.session);
  if (arena.awaited) {
    std::deque<AwaitedMemory>& waits = awaited_memory_.find(session.id())->second;
    waits.erase(std::find_if(waits.begin(), waits.end(),
                             [id](const AwaitedMemory& one) { return one.arena == id; }));
    if (waits.empty()) awaited_memory_.erase(session.id());
  }
  if (arena.mapping != nullptr && !session.closing) {
    session.arenas().spare().push_back(id);
  } else {
    LetGo(session.arenas().TakeOfJob(id));
  }
  GrantJobMemory();
}

bool SessionTable::AwaitsMemory(ArenaId id) { return FindArena(id)->awaited; }

std::string SessionTable::JobMemoryText(ArenaId id) {
  const Session& session = *Find(FindArena(id)->session);
  const std::deque<AwaitedMemory>& waits = awaited_memory_.find(session.id())->second;
  const auto wait = std::find_if(waits.begin(), waits.end(),
                                 [id](const AwaitedMemory& one) { return one.arena == id; });
  std::vector<std::pair<uint64_t, const Session*>> holders;
  for (const auto& [other, one] : sessions_) {
    const uint64_t bytes = one->arenas().use_of_jobs().bytes;
    if (bytes > 0) holders.emplace_back(bytes, one.get());
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  holders.resize(std::min(holders.size(), kHolders));
  const SessionUse use = session.use();
  return absl::StrCat(wait->bytes, " bytes, of which ", options_.job_memory - job_memory_, " of ",
                      options_.job_memory, " (limits.job_memory) and ",
                      session.limits().quota.bytes - use.bytes, " of the session's ",
                      session.limits().quota.bytes, " (limits.session_bytes) were left; jobs have ",
                      job_memory_, holders.empty() ? "" : ", most of it ",
                      absl::StrJoin(holders, ", ", [](std::string* out, const auto& holder) {
                        absl::StrAppend(out, holder.second->id().ToString(), " (",
                                        holder.second->name(), ") ", holder.first, " bytes");
                      }));
}

}  // namespace ferry
