// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/job_memory.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr size_t kHolders = 5;

uint64_t WholeBytes(const LocalDevice& device, uint64_t bytes) {
  constexpr uint64_t kGranule = uint64_t{2} << 20;
  if (device.gpu == nullptr || bytes > UINT64_MAX - kGranule) return bytes;
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace

void JobMemory::DropOldestSpare(Session& session) {
  std::vector<ArenaId>& spares = of_session_.find(session.id())->second.spares;
  const ArenaId oldest = spares.front();
  spares.erase(spares.begin());
  LetGo(session.arenas().TakeOfJob(oldest));
}

absl::Status JobMemory::Reserve(Session& session, uint64_t bytes, size_t count) {
  home_.Check();
  absl::Status reserved = session.arenas().Reserve(bytes, count);
  const std::vector<ArenaId> spare = spares(session.id());
  uint64_t spare_bytes = 0;
  for (const ArenaId id : spare) spare_bytes += arenas_.Find(id)->bytes;
  const SessionUse& quota = session.limits().quota;
  const ArenaUse use = session.arenas().use();
  const bool helps = bytes <= quota.bytes && use.bytes - spare_bytes <= quota.bytes - bytes &&
                     use.arenas - spare.size() + count <= quota.arenas;
  while (!reserved.ok() && helps) {
    DropOldestSpare(session);
    reserved = session.arenas().Reserve(bytes, count);
  }
  return reserved;
}

bool JobMemory::MakeRoom(uint64_t bytes) {
  const auto fits = [&] { return bytes_ <= most_ - bytes; };
  for (const auto& [id, jobs] : of_session_) {
    while (!fits() && !jobs.spares.empty()) DropOldestSpare(*sessions_.Find(id));
  }
  return fits();
}

bool JobMemory::MakeRoomOn(const LocalDevice& device, uint64_t bytes) {
  const auto fits = [&] {
    const uint64_t taken = device.arena_bytes + device.coming_bytes;
    return device.gpu == nullptr || (taken <= gpu_bytes_ && bytes <= gpu_bytes_ - taken);
  };
  for (const auto& [id, jobs] : of_session_) {
    while (!fits() && !jobs.spares.empty()) DropOldestSpare(*sessions_.Find(id));
  }
  return fits();
}

absl::Status JobMemory::Check(Session& session, const LocalDevice& device, uint64_t bytes) {
  if (device.gpu != nullptr && bytes > gpu_bytes_) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                 absl::StrCat(bytes, " bytes: all arenas on ", device.id.ToString(), " may have ",
                              gpu_bytes_, " bytes (limits.gpu_bytes)"));
  }
  if (bytes > most_) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                 absl::StrCat(bytes, " bytes: all jobs together may have ", most_,
                              " bytes (limits.job_memory)"));
  }
  const SessionUse& quota = session.limits().quota;
  const ArenaUse& jobs = session.arenas().use_of_jobs();
  const ArenaUse& use = session.arenas().use();
  if (use.arenas - jobs.arenas < quota.arenas && bytes <= quota.bytes &&
      use.bytes - jobs.bytes <= quota.bytes - bytes) {
    return absl::OkStatus();
  }
  const absl::Status refused = Reserve(session, bytes);
  return WithText(
      refused, absl::StrCat(refused.message(), "; largest holders: ", sessions_.LargestHolders()));
}

std::optional<ArenaId> JobMemory::TakeSpare(SessionId session, const LocalDevice& device,
                                            uint64_t bytes) {
  const auto jobs = of_session_.find(session);
  if (jobs == of_session_.end()) return std::nullopt;
  // The memory that was left last is tried first: it may be in a cache. Memory that is much larger
  // than needed is kept for a larger job.
  std::vector<ArenaId>& spares = jobs->second.spares;
  for (size_t i = spares.size(); i > 0; --i) {
    const ArenaId id = spares[i - 1];
    const Arena& arena = *arenas_.Find(id);
    if (arena.device != device.id || arena.bytes < bytes || arena.bytes / 2 > bytes) continue;
    spares.erase(spares.begin() + static_cast<ptrdiff_t>(i - 1));
    return id;
  }
  return std::nullopt;
}

absl::StatusOr<ArenaId> JobMemory::Take(Session& session, LocalDevice& device, uint64_t bytes,
                                        Mapped mapped) {
  home_.Check();
  bytes = WholeBytes(device, bytes);
  if (awaited_.empty()) {
    if (const std::optional<ArenaId> left = TakeSpare(session.id(), device, bytes)) return *left;
  }
  RETURN_IF_ERROR(Check(session, device, bytes));
  auto made = std::make_unique<Arena>();
  if (device.gpu != nullptr) made->kind = MemoryKind::kCudaAllocate;
  made->session = session.id();
  made->device = device.id;
  made->of_job = true;
  made->awaited = true;
  const ArenaId id = arenas_.Add(session.arenas(), std::move(made)).id;
  of_session_.try_emplace(session.id());
  awaited_[session.id()].push_back({id, bytes, &device, std::move(mapped)});
  OnFreed();
  return id;
}

void JobMemory::OnFreed() {
  home_.Check();
  absl::flat_hash_set<SessionId> full;  // sessions whose quota is used up
  while (true) {
    // The first request of the session that was given memory longest ago.
    auto next = awaited_.end();
    uint64_t longest_ago = 0;
    for (auto one = awaited_.begin(); one != awaited_.end(); ++one) {
      if (full.contains(one->first)) continue;
      const uint64_t last_grant = of_session_.find(one->first)->second.last_grant;
      if (next != awaited_.end() && last_grant >= longest_ago) continue;
      next = one;
      longest_ago = last_grant;
    }
    if (next == awaited_.end()) return;
    const SessionId id = next->first;
    Session& session = *sessions_.Find(id);
    std::deque<Awaited>& waits = next->second;
    Awaited& first = waits.front();
    if (const std::optional<ArenaId> left = TakeSpare(id, *first.device, first.bytes)) {
      Adopt(first, *left);
    } else if (!MakeRoomOn(*first.device, first.bytes) || !Reserve(session, first.bytes).ok()) {
      full.insert(id);
      continue;
    } else if (!MakeRoom(first.bytes)) {
      session.arenas().Unreserve(first.bytes);
      return;
    } else {
      Grant(first);
    }
    of_session_.find(id)->second.last_grant = ++grants_;
    waits.pop_front();
    if (waits.empty()) awaited_.erase(id);
  }
}

void JobMemory::Count(Arena& arena, uint64_t bytes) {
  sessions_.Find(arena.session)->arenas().CountOfJob(arena, bytes);
  bytes_ += bytes;
  arenas_.Count(arena);
  FlightRecorder::Get().Record("arena.job", arena.id.value(), arena.session.value(), bytes);
}

void JobMemory::LetGo(std::unique_ptr<Arena> arena) {
  if (!arena->awaited) bytes_ -= arena->held;
  arenas_.LetGo(std::move(arena));
}

void JobMemory::Forget(const Session& session) {
  home_.Check();
  bytes_ -= session.arenas().use_of_jobs().bytes;
  of_session_.erase(session.id());
  awaited_.erase(session.id());
}

std::vector<ArenaId> JobMemory::spares(SessionId session) const {
  home_.Check();
  const auto jobs = of_session_.find(session);
  return jobs == of_session_.end() ? std::vector<ArenaId>() : jobs->second.spares;
}

void JobMemory::Adopt(Awaited& wait, ArenaId spare) {
  Arena& arena = *arenas_.Find(wait.arena);
  Session& session = *sessions_.Find(arena.session);
  std::unique_ptr<Arena> left = session.arenas().TakeOfJob(spare);
  const uint64_t bytes = left->bytes;
  std::unique_ptr<DeviceMemory> mapping = std::move(left->mapping);
  LetGo(std::move(left));
  const absl::Status reserved = session.arenas().Reserve(bytes);
  FERRY_CHECK(reserved.ok());  // the session has just given back as much
  Count(arena, bytes);
  // Answers later, as if the memory were being mapped: the owner gives it back once, and not before
  // it was told.
  control_.Post([this, id = wait.arena, device = wait.device, mapping = std::move(mapping),
                 mapped = std::move(wait.mapped)]() mutable {
    OnMade(id, *device, std::move(mapping), mapped);
  });
}

void JobMemory::Grant(Awaited& wait) {
  LocalDevice* const device = wait.device;
  Count(*arenas_.Find(wait.arena), wait.bytes);
  device->memory->Post([this, id = wait.arena, bytes = wait.bytes, device,
                        mapped = std::move(wait.mapped)]() mutable {
    if (device->gpu != nullptr) {
      auto mapping = device->Map({MemoryKind::kCudaAllocate, bytes}, {}, /*ours=*/true);
      control_.Post(
          [this, id, device, mapping = std::move(mapping), mapped = std::move(mapped)]() mutable {
            OnMade(id, *device, std::move(mapping), mapped);
          });
      return;
    }
    MakePages(id, device, HostMapping::Create(bytes), std::move(mapped));
  });
}

void JobMemory::MakePages(ArenaId id, LocalDevice* device,
                          absl::StatusOr<std::unique_ptr<HostMapping>> mapping, Mapped mapped) {
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
        OnMade(id, *device, std::move(mapping), mapped);
      });
}

void JobMemory::OnMade(ArenaId id, LocalDevice& device,
                       absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping,
                       const Mapped& mapped) {
  Arena* const arena = arenas_.Find(id);
  if (arena == nullptr) {  // the post was refused, and its session is gone
    if (mapping.ok()) device.memory->Post([gone = *std::move(mapping)] {});
    return;
  }
  if (mapping.ok()) arena->mapping = *std::move(mapping);
  mapped(id, mapping.status());
}

void JobMemory::Return(ArenaId id) {
  home_.Check();
  Arena& arena = *arenas_.Find(id);
  Session& session = *sessions_.Find(arena.session);
  if (arena.awaited) {
    std::deque<Awaited>& waits = awaited_.find(session.id())->second;
    waits.erase(std::find_if(waits.begin(), waits.end(),
                             [id](const Awaited& one) { return one.arena == id; }));
    if (waits.empty()) awaited_.erase(session.id());
  }
  if (arena.mapping != nullptr && !session.client_gone) {
    of_session_.find(session.id())->second.spares.push_back(id);
  } else {
    LetGo(session.arenas().TakeOfJob(id));
  }
  OnFreed();
}

std::string JobMemory::TextOf(ArenaId id) const {
  home_.Check();
  const Session& session = *sessions_.Find(arenas_.Find(id)->session);
  const std::deque<Awaited>& waits = awaited_.find(session.id())->second;
  const auto wait = std::find_if(waits.begin(), waits.end(),
                                 [id](const Awaited& one) { return one.arena == id; });
  std::vector<std::pair<uint64_t, const Session*>> holders;
  for (const auto& [other, jobs] : of_session_) {
    const Session& one = *sessions_.Find(other);
    const uint64_t bytes = one.arenas().use_of_jobs().bytes;
    if (bytes > 0) holders.emplace_back(bytes, &one);
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  holders.resize(std::min(holders.size(), kHolders));
  return absl::StrCat(
      wait->bytes, " bytes, of which ", most_ - bytes_, " of ", most_, " (limits.job_memory) and ",
      session.limits().quota.bytes - session.arenas().use().bytes, " of the session's ",
      session.limits().quota.bytes, " (limits.session_bytes)",
      wait->device->gpu == nullptr
          ? ""
          : absl::StrCat(" and ", gpu_bytes_ - std::min(gpu_bytes_, wait->device->arena_bytes),
                         " of ", gpu_bytes_, " of the GPU (limits.gpu_bytes)"),
      " were left; jobs have ", bytes_, holders.empty() ? "" : ", most of it ",
      absl::StrJoin(holders, ", ", [](std::string* out, const auto& holder) {
        absl::StrAppend(out, holder.second->id().ToString(), " (", holder.second->name(), ") ",
                        holder.first, " bytes");
      }));
}

}  // namespace ferry
