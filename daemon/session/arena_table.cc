// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/arena_table.h"

#include <utility>

#include "base/flight_recorder.h"

namespace ferry {

Arena& ArenaTable::Add(ArenaBook& book, std::unique_ptr<Arena> arena) {
  home_.Check();
  arena->id = ArenaId(next_++);
  Arena& added = book.Add(std::move(arena));
  arenas_[added.id] = &added;
  if (!added.awaited) Count(added);
  return added;
}

void ArenaTable::Count(const Arena& arena) {
  home_.Check();
  LocalDevice& device = *devices_.Find(arena.device);
  ++device.arenas;
  device.arena_bytes += arena.held;
}

Arena* ArenaTable::Find(ArenaId id) const {
  home_.Check();
  auto it = arenas_.find(id);
  return it == arenas_.end() ? nullptr : it->second;
}

void ArenaTable::LetGo(std::unique_ptr<Arena> arena) {
  home_.Check();
  FlightRecorder::Get().Record("arena.release", arena->id.value(), arena->session.value(),
                               arena->bytes);
  arenas_.erase(arena->id);
  if (arena->awaited) return;
  LocalDevice& device = *devices_.Find(arena->device);
  --device.arenas;
  device.arena_bytes -= arena->held;
  gone_(arena->id);
  device.memory->Post([mapping = std::move(arena->mapping)] {});
}

}  // namespace ferry
