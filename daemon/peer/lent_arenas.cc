// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/lent_arenas.h"

#include <utility>

namespace ferry {

void LentArenas::Lend(PeerId peer, const Layout& layout) {
  home_.Check();
  OfPeer& of = peers_[peer];
  for (const Range& range : layout.extents()) {
    if (range.arena == of.last || !of.arenas.insert(range.arena).second) continue;
    of.last = range.arena;
    to_[range.arena].push_back(peer);
  }
}

bool LentArenas::IsLent(ArenaId arena, PeerId to) const {
  home_.Check();
  const auto of = peers_.find(to);
  return of != peers_.end() && of->second.arenas.contains(arena);
}

std::vector<PeerId> LentArenas::Take(ArenaId arena) {
  home_.Check();
  const auto it = to_.find(arena);
  if (it == to_.end()) return {};
  std::vector<PeerId> to = std::move(it->second);
  to_.erase(it);
  for (const PeerId peer : to) {
    OfPeer& of = peers_[peer];
    of.arenas.erase(arena);
    if (of.last == arena) of.last = ArenaId();
  }
  return to;
}

void LentArenas::ForgetPeer(PeerId peer) {
  home_.Check();
  const auto of = peers_.find(peer);
  if (of == peers_.end()) return;
  for (const ArenaId arena : of->second.arenas) {
    const auto it = to_.find(arena);
    std::erase(it->second, peer);
    if (it->second.empty()) to_.erase(it);
  }
  peers_.erase(of);
}

}  // namespace ferry
