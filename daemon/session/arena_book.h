// SPDX-License-Identifier: Apache-2.0
// The arenas of one session, those of its client and those of its jobs, and how much of the
// session's quota they take. Refuses what does not fit in the quota, ids that are not the
// session's, ids that were released (the last kReleasedKept are known), and the release of an arena
// that transfers use. Maps and unmaps nothing: whoever takes an arena out of the book destroys its
// mapping on the memory thread of its device. Home: control. Owner: Session.
//
// An arena is pinned while transfers use it: `Arena::transfers` counts them. Invariant: use() is
// what was reserved and is not given back, no matter whether an arena is there for it yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/home.h"
#include "base/ids.h"
#include "device/memory.h"
#include "transfer/layout.h"

namespace ferry {

// One allocation of a session on a device, mapped here.
struct Arena {
  ArenaId id;
  SessionId session;
  GlobalDeviceId device;
  uint64_t bytes = 0;
  uint64_t held = 0;  // bytes that count against device and quotas: a GPU gives whole granules
  bool imported = false;
  MemoryKind kind = MemoryKind::kMemfd;  // the kind of the registered memory
  // The memory of a job; no client names it. It has no mapping until its memory has come.
  bool of_job = false;
  size_t count = 1;        // how many arenas it counts for in the session's quota
  bool awaited = false;    // for a job's arena: there is no room for it yet, so it counts nowhere
  uint64_t transfers = 0;  // transfers that use it now; it is not unmapped while there are any
  bool freed = false;      // its client has given it up, and has forgotten its id
  std::unique_ptr<DeviceMemory> mapping;
  bool registration_tried =
      false;  // on a host device: a GPU was asked to register it, and has answered
};

// How much arenas take of a quota.
struct ArenaUse {
  uint64_t bytes = 0;
  uint64_t arenas = 0;  // an arena of several allocations counts for as many
};

class ArenaBook {
 public:
  static constexpr size_t kReleasedKept = 65536;

  // `session` is named in errors.
  ArenaBook(SessionId session, ArenaUse quota) : session_(session), quota_(quota) {}

  // --- The quota. Reserve takes `bytes` and `count` arenas out of it, or answers
  // RESOURCE_EXHAUSTED. Call it before the memory is mapped, so that two registrations at once
  // cannot pass the quota together.
  absl::Status Reserve(uint64_t bytes, size_t count = 1);
  // Gives back what was reserved for memory that could not be mapped. An arena gives back what it
  // took when it is taken out of the book.
  void Unreserve(uint64_t bytes, size_t count = 1);
  const ArenaUse& use() const { return use_; }

  // --- Arenas of the client. The caller has reserved the arena (Reserve), unless the arena is a
  // job's and awaited.
  Arena& Add(std::unique_ptr<Arena> arena);
  // The client's arena of this id. ARENA_NOT_FOUND if it never was this session's; ID_STALE if it
  // was released.
  absl::StatusOr<Arena*> Find(ArenaId id);
  // Takes the arena out of the book. FAILED_PRECONDITION while transfers use it.
  absl::StatusOr<std::unique_ptr<Arena>> Take(ArenaId id);
  // As Take, but while transfers use the arena the book only forgets its id, and returns null.
  // TakeUnused returns it when the last of them is over; until then it counts against the quota.
  absl::StatusOr<std::unique_ptr<Arena>> Free(ArenaId id);
  std::vector<std::unique_ptr<Arena>> TakeUnused();

  // --- Arenas of jobs.
  // The memory of an awaited arena is there, as reserved: from now on it counts.
  void CountOfJob(Arena& arena, uint64_t bytes);
  // Takes out the arena of a job that is over. Nobody asks for its id any more.
  std::unique_ptr<Arena> TakeOfJob(ArenaId id);
  // The part of use() that is jobs' memory, spares included.
  const ArenaUse& use_of_jobs() const { return use_of_jobs_; }

  // --- All arenas.
  // A transfer uses every arena of the layout, from Pin to Unpin; `count` alike transfers in one
  // Unpin.
  void Pin(const Layout& layout);
  void Unpin(const Layout& layout, uint64_t count);
  // All that count against the quota, by id.
  std::vector<const Arena*> List() const;
  // Takes out all arenas, used or not: the session is destroyed.
  std::vector<std::unique_ptr<Arena>> TakeAll();

 private:
  void Forget(ArenaId id);

  const SessionId session_;
  const ArenaUse quota_;
  ArenaUse use_;
  ArenaUse use_of_jobs_;
  absl::flat_hash_map<ArenaId, std::unique_ptr<Arena>> arenas_;
  absl::flat_hash_set<ArenaId> released_;  // ids that the client has released, see kReleasedKept
  std::deque<ArenaId> release_order_;      // the same ids, the oldest first
  std::vector<ArenaId> unused_;            // freed arenas that no transfer uses any more
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
