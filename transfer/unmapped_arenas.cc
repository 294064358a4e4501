// SPDX-License-Identifier: Apache-2.0
#include "transfer/unmapped_arenas.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace ferry {

bool UnmappedArenas::Contains(absl::Time now, const Clique& clique, const Layout& source) const {
  home_.Check();
  const Pair* const pair = Find(clique);
  if (pair == nullptr) return false;
  return absl::c_any_of(source.extents(), [&](const Range& extent) {
    const auto arena = pair->arenas.find(extent.arena);
    return arena != pair->arenas.end() && now < arena->second.again;
  });
}

void UnmappedArenas::OnTry(absl::Time now, const Clique& clique, const Layout& source) {
  home_.Check();
  const auto pair = pairs_.find(clique);
  if (pair == pairs_.end()) return;
  for (const Range& extent : source.extents()) {
    const auto arena = pair->second.arenas.find(extent.arena);
    if (arena != pair->second.arenas.end()) arena->second.again = now + arena->second.wait;
  }
}

void UnmappedArenas::OnRefused(absl::Time now, const Clique& clique, const Layout& source,
                               std::string why) {
  home_.Check();
  Pair& pair = pairs_[clique];
  if (pair.arenas.size() >= kMost) pair.arenas.clear();  // arenas come and go
  for (const Range& extent : source.extents()) {
    const auto [arena, added] = pair.arenas.try_emplace(extent.arena);
    Arena& state = arena->second;
    state.wait = added ? kTriedAgainAfter : std::min(2 * state.wait, kLongest);
    state.again = now + state.wait;
  }
  pair.why = std::move(why);
}

void UnmappedArenas::OnReached(const Clique& clique, const Layout& source) {
  home_.Check();
  const auto pair = pairs_.find(clique);
  if (pair == pairs_.end()) return;
  for (const Range& extent : source.extents()) pair->second.arenas.erase(extent.arena);
  if (pair->second.arenas.empty()) pairs_.erase(pair);
}

const UnmappedArenas::Pair* UnmappedArenas::Find(const Clique& clique) const {
  home_.Check();
  const auto found = pairs_.find(clique);
  return found == pairs_.end() ? nullptr : &found->second;
}

}  // namespace ferry
