// SPDX-License-Identifier: Apache-2.0
// Every arena of the daemon by its id, whichever session has it, and how much of each device arenas
// take (LocalDevice::arenas, arena_bytes). Refuses nothing: quotas and bounds are looked at before
// (ArenaRegistrar, JobMemory). Home: control. Owner: SessionTable. The arenas themselves are owned
// by the ArenaBook of their session.
//
// Invariant: an arena counts on its device from the moment that its memory counts (Add, or Count of
// one that was awaited) until LetGo. Ids are never given out twice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/local_devices.h"
#include "daemon/session/arena_book.h"

namespace ferry {

class ArenaTable {
 public:
  // `gone` is told of each arena that had memory and is let go of. `devices` must outlive the
  // table.
  ArenaTable(const LocalDevices& devices, std::function<void(ArenaId)> gone)
      : devices_(devices), gone_(std::move(gone)) {}

  // Gives the arena its id and puts it into the book of its session. It counts on its device,
  // unless it is awaited.
  Arena& Add(ArenaBook& book, std::unique_ptr<Arena> arena);
  // There is memory for an arena that was awaited, and `held` says how much.
  void Count(const Arena& arena);
  // Null if there is none.
  Arena* Find(ArenaId id) const;
  // Forgets an arena that was taken out of its book, and unmaps it on its device's memory thread.
  void LetGo(std::unique_ptr<Arena> arena);

 private:
  const LocalDevices& devices_;
  const std::function<void(ArenaId)> gone_;
  absl::flat_hash_map<ArenaId, Arena*> arenas_;
  uint64_t next_ = 1;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
