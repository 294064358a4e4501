// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/arena_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {
namespace {

// Each arena that the layout has bytes of, once.
template <typename Function>
void ForEachArena(const Layout& layout, Function function) {
  absl::flat_hash_set<ArenaId> others;  // than the last one
  ArenaId last;
  for (const Range& extent : layout.extents()) {
    if (extent.arena == last) continue;
    if (last != ArenaId()) others.insert(last);
    last = extent.arena;
    if (!others.contains(last)) function(last);
  }
}

}  // namespace

absl::Status ArenaBook::Reserve(uint64_t bytes, size_t count) {
  home_.Check();
  if (use_.arenas >= quota_.arenas || count > quota_.arenas - use_.arenas) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kQuotaArenas,
                 absl::StrCat("register an arena: ", session_.ToString(), " has ", use_.arenas,
                              " of ", quota_.arenas, " arenas",
                              count > 1 ? absl::StrCat(", and one of ", count,
                                                       " allocations counts for as many")
                                        : "",
                              "; release some or use larger ones"));
  }
  if (bytes > quota_.bytes - use_.bytes) {
    return Error(
        absl::StatusCode::kResourceExhausted, Reason::kQuotaBytes,
        absl::StrCat("register an arena of ", bytes, " bytes: ", session_.ToString(), " holds ",
                     use_.bytes, " of ", quota_.bytes, " bytes (limits.session_bytes), ",
                     quota_.bytes - use_.bytes, " are left"));
  }
  use_.arenas += count;
  use_.bytes += bytes;
  return absl::OkStatus();
}

void ArenaBook::Unreserve(uint64_t bytes, size_t count) {
  home_.Check();
  use_.arenas -= count;
  use_.bytes -= bytes;
}

Arena& ArenaBook::Add(std::unique_ptr<Arena> arena) {
  home_.Check();
  Arena& added = *arena;
  arenas_[added.id] = std::move(arena);
  return added;
}

absl::StatusOr<Arena*> ArenaBook::Find(ArenaId id) {
  home_.Check();
  auto it = arenas_.find(id);
  if (it != arenas_.end() && !it->second->of_job && !it->second->freed) return it->second.get();
  if (released_.contains(id)) {
    return Error(absl::StatusCode::kNotFound, Reason::kIdStale,
                 absl::StrCat(id.ToString(), " was released"));
  }
  return Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound,
               absl::StrCat(id.ToString(), " is not known to this session"));
}

absl::StatusOr<std::unique_ptr<Arena>> ArenaBook::Take(ArenaId id) {
  home_.Check();
  ASSIGN_OR_RETURN(Arena * arena, Find(id));
  if (arena->transfers > 0) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kFieldInvalid,
                 absl::StrCat("release ", id.ToString(), ": ", arena->transfers,
                              " transfers use it; wait for them or cancel them"));
  }
  auto it = arenas_.find(id);
  std::unique_ptr<Arena> taken = std::move(it->second);
  arenas_.erase(it);
  Forget(id);
  Unreserve(taken->held, taken->count);
  return taken;
}

absl::StatusOr<std::unique_ptr<Arena>> ArenaBook::Free(ArenaId id) {
  home_.Check();
  ASSIGN_OR_RETURN(Arena * arena, Find(id));
  if (arena->transfers == 0) return Take(id);
  arena->freed = true;
  Forget(id);
  return nullptr;
}

void ArenaBook::Forget(ArenaId id) {
  if (release_order_.size() == kReleasedKept) {
    released_.erase(release_order_.front());
    release_order_.pop_front();
  }
  released_.insert(id);
  release_order_.push_back(id);
}

std::vector<std::unique_ptr<Arena>> ArenaBook::TakeUnused() {
  home_.Check();
  std::vector<std::unique_ptr<Arena>> all;
  for (const ArenaId id : std::exchange(unused_, {})) {
    all.push_back(std::move(arenas_.extract(id).mapped()));
    Unreserve(all.back()->held, all.back()->count);
  }
  return all;
}

void ArenaBook::CountOfJob(Arena& arena, uint64_t bytes) {
  home_.Check();
  arena.awaited = false;
  arena.bytes = arena.held = bytes;
  ++use_of_jobs_.arenas;
  use_of_jobs_.bytes += bytes;
}

std::unique_ptr<Arena> ArenaBook::TakeOfJob(ArenaId id) {
  home_.Check();
  const auto it = arenas_.find(id);
  std::unique_ptr<Arena> taken = std::move(it->second);
  FERRY_CHECK(taken->of_job && taken->transfers == 0);
  arenas_.erase(it);
  if (taken->awaited) return taken;
  Unreserve(taken->held, taken->count);
  --use_of_jobs_.arenas;
  use_of_jobs_.bytes -= taken->held;
  return taken;
}

void ArenaBook::Pin(const Layout& layout) {
  home_.Check();
  ForEachArena(layout, [this](ArenaId id) { ++arenas_.find(id)->second->transfers; });
}

void ArenaBook::Unpin(const Layout& layout, uint64_t count) {
  home_.Check();
  ForEachArena(layout, [this, count](ArenaId id) {
    Arena& arena = *arenas_.find(id)->second;
    arena.transfers -= count;
    if (arena.transfers == 0 && arena.freed) unused_.push_back(id);
  });
}

std::vector<const Arena*> ArenaBook::List() const {
  home_.Check();
  std::vector<const Arena*> all;
  for (const auto& [id, arena] : arenas_) {
    if (!arena->awaited) all.push_back(arena.get());
  }
  std::sort(all.begin(), all.end(), [](const Arena* a, const Arena* b) { return a->id < b->id; });
  return all;
}

std::vector<std::unique_ptr<Arena>> ArenaBook::TakeAll() {
  home_.Check();
  std::vector<std::unique_ptr<Arena>> all;
  for (auto& [id, arena] : arenas_) all.push_back(std::move(arena));
  arenas_.clear();
  unused_.clear();
  use_ = use_of_jobs_ = {};
  return all;
}

}  // namespace ferry
