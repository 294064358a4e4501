// SPDX-License-Identifier: Apache-2.0
#include "transfer/mapped/peer_arena_table.h"

#include "base/check.h"

namespace ferry {

const HostMapping* PeerArenaTable::Find(PeerId peer, ArenaId arena) const {
  const auto arenas = present_.find(peer);
  if (arenas == present_.end()) return nullptr;
  const auto found = arenas->second.find(arena);
  return found == arenas->second.end() ? nullptr : found->second;
}

bool PeerArenaTable::Insert(PeerId peer, ArenaId arena, std::unique_ptr<HostMapping>& mapping) {
  FERRY_CHECK(mapping != nullptr);
  const HostMapping* const key = mapping.get();
  if (!present_[peer].try_emplace(arena, key).second) return false;
  bytes_ += mapping->bytes();
  entries_[key].mapping = std::move(mapping);
  return true;
}

const HostMapping* PeerArenaTable::Pin(PeerId peer, ArenaId arena) {
  const HostMapping* const mapping = Find(peer, arena);
  if (mapping != nullptr) ++entries_.find(mapping)->second.pins;
  return mapping;
}

std::unique_ptr<HostMapping> PeerArenaTable::Unpin(const HostMapping* mapping) {
  const auto entry = entries_.find(mapping);
  FERRY_CHECK(entry != entries_.end() && entry->second.pins > 0);
  --entry->second.pins;
  return Release(mapping);
}

std::unique_ptr<HostMapping> PeerArenaTable::Gone(PeerId peer, ArenaId arena) {
  const auto arenas = present_.find(peer);
  if (arenas == present_.end()) return nullptr;
  const auto found = arenas->second.find(arena);
  if (found == arenas->second.end()) return nullptr;
  const HostMapping* const mapping = found->second;
  arenas->second.erase(found);
  if (arenas->second.empty()) present_.erase(arenas);
  entries_.find(mapping)->second.gone = true;
  return Release(mapping);
}

std::vector<std::unique_ptr<HostMapping>> PeerArenaTable::DropPeer(PeerId peer) {
  std::vector<std::unique_ptr<HostMapping>> unused;
  const auto arenas = present_.find(peer);
  if (arenas == present_.end()) return unused;
  const auto all = std::move(arenas->second);
  present_.erase(arenas);
  for (const auto& [arena, mapping] : all) {
    entries_.find(mapping)->second.gone = true;
    if (std::unique_ptr<HostMapping> last = Release(mapping)) unused.push_back(std::move(last));
  }
  return unused;
}

std::unique_ptr<HostMapping> PeerArenaTable::Release(const HostMapping* mapping) {
  const auto entry = entries_.find(mapping);
  if (!entry->second.gone || entry->second.pins > 0) return nullptr;
  std::unique_ptr<HostMapping> last = std::move(entry->second.mapping);
  entries_.erase(entry);
  bytes_ -= last->bytes();
  return last;
}

}  // namespace ferry
