// SPDX-License-Identifier: Apache-2.0
#include "transfer/tombstones.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace ferry {

uint64_t Tombstones::BytesOf(const Tombstone& tombstone) {
  // With an entry of the list, one of the map, and what a status takes.
  constexpr uint64_t kRecord = 384;
  return kRecord + tombstone.key.key.size() + tombstone.why.message().size();
}

Tombstones::Tombstone Tombstones::Remove(Place place) {
  OfPeer& of = of_peers_[place.peer.value()];
  of.bytes -= BytesOf(*place.entry);
  by_key_.erase(HashedKey(place.entry->key));
  Tombstone tombstone = std::move(*place.entry);
  of.oldest_first.erase(place.entry);
  return tombstone;
}

void Tombstones::Put(PeerId peer, Tombstone tombstone) {
  home_.Check();
  if (const auto old = by_key_.find(HashedKey(tombstone.key)); old != by_key_.end()) {
    Remove(old->second);
  }
  OfPeer& of = of_peers_[peer.value()];
  of.bytes += BytesOf(tombstone);
  of.oldest_first.push_back(std::move(tombstone));
  const auto entry = std::prev(of.oldest_first.end());
  by_key_.try_emplace(HashedKey(entry->key), Place{peer, entry});
  next_expiry_ = std::min(next_expiry_, entry->ended + kLife);
  while (of.oldest_first.size() > most_ || of.bytes > most_bytes_) {
    Remove({peer, of.oldest_first.begin()});
  }
}

void Tombstones::Leave(absl::Time now, PeerId peer, Side side, const MatchKey& key,
                       const absl::Status& why) {
  home_.Check();
  // Who receives is started again more often than it is missed: it is waited for.
  if (side == Side::kReceive && HasReason(why, Reason::kPeerClientGone)) return;
  for (const Reason own :
       {Reason::kCancelled, Reason::kPoisoned, Reason::kPeerClientGone, Reason::kWaitingForPeer}) {
    if (HasReason(why, own)) return Put(peer, {key, side, why, now});
  }
}

std::optional<Tombstones::Tombstone> Tombstones::Take(absl::Time now, Side side,
                                                      const HashedKey& key) {
  home_.Check();
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  Tombstone tombstone = Remove(found->second);
  if (tombstone.side == side || tombstone.ended + kLife <= now) return std::nullopt;
  return tombstone;
}

void Tombstones::Forget(PeerId peer) {
  home_.Check();
  OfPeer& of = of_peers_[peer.value()];
  while (!of.oldest_first.empty()) Remove({peer, of.oldest_first.begin()});
}

void Tombstones::Expire(absl::Time now, size_t most) {
  home_.Check();
  if (now < next_expiry_) return;
  next_expiry_ = absl::InfiniteFuture();
  for (size_t peer = 0; peer < of_peers_.size(); ++peer) {
    const List& list = of_peers_[peer].oldest_first;
    for (; most > 0 && !list.empty() && list.front().ended + kLife <= now; --most) {
      Remove({PeerId(static_cast<uint32_t>(peer)), of_peers_[peer].oldest_first.begin()});
    }
    if (!list.empty()) next_expiry_ = std::min(next_expiry_, list.front().ended + kLife);
  }
}

}  // namespace ferry
