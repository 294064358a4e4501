// SPDX-License-Identifier: Apache-2.0
#include "transfer/mapped/peer_arena_table.h"

#include "base/check.h"

namespace ferry {

const DeviceMemory* PeerArenaTable::Find(PeerId peer, ArenaId arena) const {
  home_.Check();
  const auto arenas = present_.find(peer);
  if (arenas == present_.end()) return nullptr;
  const auto found = arenas->second.find(arena);
  return found == arenas->second.end() ? nullptr : found->second;
}

bool PeerArenaTable::Insert(PeerId peer, ArenaId arena, std::unique_ptr<DeviceMemory>& mapping) {
  home_.Check();
  FERRY_CHECK(mapping != nullptr);
  const DeviceMemory* const key = mapping.get();
  if (!present_[peer].try_emplace(arena, key).second) return false;
  bytes_ += mapping->bytes();
  entries_[key].mapping = std::move(mapping);
  return true;
}

const DeviceMemory* PeerArenaTable::Pin(PeerId peer, ArenaId arena) {
  home_.Check();
  const DeviceMemory* const mapping = Find(peer, arena);
  if (mapping != nullptr) ++entries_.find(mapping)->second.pins;
  return mapping;
}

std::unique_ptr<DeviceMemory> PeerArenaTable::Unpin(const DeviceMemory* mapping) {
  home_.Check();
  const auto entry = entries_.find(mapping);
  FERRY_CHECK(entry != entries_.end() && entry->second.pins > 0);
  --entry->second.pins;
  return Release(mapping);
}

std::unique_ptr<DeviceMemory> PeerArenaTable::Gone(PeerId peer, ArenaId arena) {
  home_.Check();
  const auto arenas = present_.find(peer);
  if (arenas == present_.end()) return nullptr;
  const auto found = arenas->second.find(arena);
  if (found == arenas->second.end()) return nullptr;
  const DeviceMemory* const mapping = found->second;
  arenas->second.erase(found);
  if (arenas->second.empty()) present_.erase(arenas);
  entries_.find(mapping)->second.gone = true;
  return Release(mapping);
}

std::vector<std::unique_ptr<DeviceMemory>> PeerArenaTable::DropPeer(PeerId peer) {
  home_.Check();
  std::vector<std::unique_ptr<DeviceMemory>> unused;
  const auto arenas = present_.find(peer);
  if (arenas == present_.end()) return unused;
  const auto all = std::move(arenas->second);
  present_.erase(arenas);
  for (const auto& [arena, mapping] : all) {
    entries_.find(mapping)->second.gone = true;
    if (std::unique_ptr<DeviceMemory> last = Release(mapping)) unused.push_back(std::move(last));
  }
  return unused;
}

std::unique_ptr<DeviceMemory> PeerArenaTable::Release(const DeviceMemory* mapping) {
  const auto entry = entries_.find(mapping);
  if (!entry->second.gone || entry->second.pins > 0) return nullptr;
  std::unique_ptr<DeviceMemory> last = std::move(entry->second.mapping);
  entries_.erase(entry);
  bytes_ -= last->bytes();
  return last;
}

}  // namespace ferry
