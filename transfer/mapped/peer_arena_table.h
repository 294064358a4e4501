// SPDX-License-Identifier: Apache-2.0
// The arenas of peer daemons of this host that are mapped here (host memory read-only), and how
// many launches use each. An arena that its daemon took back is not found any more, and is unmapped
// when its last launch has ended. Unmapping may block, so a mapping that is not needed any more is
// returned, to be destroyed on a memory thread. Home: control.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/home.h"
#include "base/ids.h"
#include "device/memory.h"

namespace ferry {

class PeerArenaTable {
 public:
  // Null if the arena is not mapped or is gone. Valid until Gone() or DropPeer(); if pinned, until
  // Unpin().
  const DeviceMemory* Find(PeerId peer, ArenaId arena) const;
  // False if the arena is mapped already; `mapping` then stays the caller's.
  bool Insert(PeerId peer, ArenaId arena, std::unique_ptr<DeviceMemory>& mapping);

  // Counts one more launch that reads from the arena; null if Find() would be. Unpin() takes the
  // pointer, not the ids: a peer that comes back may use the ids anew while old launches run.
  const DeviceMemory* Pin(PeerId peer, ArenaId arena);
  // A launch has ended. Not null: it was the last one of an arena that is gone.
  [[nodiscard]] std::unique_ptr<DeviceMemory> Unpin(const DeviceMemory* mapping);

  // The peer took the arena back. Not null: nothing pins it. An unknown arena is ignored.
  [[nodiscard]] std::unique_ptr<DeviceMemory> Gone(PeerId peer, ArenaId arena);
  // The peer is lost: all its arenas are gone. Returns those that nothing pins.
  [[nodiscard]] std::vector<std::unique_ptr<DeviceMemory>> DropPeer(PeerId peer);

  // Number of mappings, with those that are gone but pinned.
  size_t size() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::unique_ptr<DeviceMemory> mapping;
    uint64_t pins = 0;
    bool gone = false;
  };
  // Takes the entry out if it is gone and nothing pins it; else null.
  std::unique_ptr<DeviceMemory> Release(const DeviceMemory* mapping);

  absl::flat_hash_map<PeerId, absl::flat_hash_map<ArenaId, const DeviceMemory*>> present_;
  absl::flat_hash_map<const DeviceMemory*, Entry> entries_;
  uint64_t bytes_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
