// SPDX-License-Identifier: Apache-2.0
#include "transfer/offer_shares.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {
namespace {

template <typename Map, typename Key>
size_t CountOf(const Map& map, const Key& key) {
  const auto entry = map.find(key);
  return entry == map.end() ? 0 : entry->second.count;
}

template <typename Map, typename Key>
void GiveSome(Map& map, const Key& key, absl::Time now, size_t count) {
  const auto entry = map.find(key);
  FERRY_CHECK(entry != map.end() && entry->second.count >= count);
  entry->second.Give(now, count);
  if (entry->second.count == 0) map.erase(entry);
}

}  // namespace

void OfferShares::Share::Take(absl::Time when, size_t more) {
  if (count == 0) ends = absl::InfiniteFuture();
  count += more;
  ends = std::min(ends, when);
}

void OfferShares::Share::Give(absl::Time now, size_t some) {
  count -= some;
  if (!gone) gone.emplace();
  gone->OnFreed(now, some);
}

size_t OfferShares::OfUser(uint32_t uid) const { return CountOf(of_user_, uid); }

size_t OfferShares::OfSession(uint32_t uid, SessionId session) const {
  return CountOf(of_session_, std::make_pair(uid, session));
}

size_t OfferShares::Weight(uint32_t uid, SessionId session, size_t count) const {
  // Of the places that other users leave, a user may have as many as stay free, which is half;
  // and so may a session of this half.
  // The last of `count` has the others before it.
  const size_t user = OfUser(uid) + count - 1;
  return all() + count - 1 - user + 2 * (user + OfSession(uid, session) + count - 1);
}

bool OfferShares::Fits(size_t most, uint32_t uid, SessionId session, size_t count) const {
  return Weight(uid, session, count) < most;
}

std::optional<absl::Duration> OfferShares::RetryAfterFor(absl::Time now, size_t most, uint32_t uid,
                                                         SessionId session, size_t count) const {
  const Share* share = &all_;
  size_t weighs = 1;  // each of them, in Weight
  if (const auto own = of_session_.find({uid, session}); own != of_session_.end()) {
    share = &own->second;
    weighs = 4;
  } else if (const auto users = of_user_.find(uid); users != of_user_.end()) {
    share = &users->second;
    weighs = 2;
  }
  const size_t weight = Weight(uid, session, count);
  const size_t over = weight < most ? 1 : weight - most + 1;
  if (share->gone) {
    const absl::Duration of_late = share->gone->For(now, (over + weighs - 1) / weighs);
    if (of_late < RetryAfter::kMost) return of_late;
  }
  if (share->ends <= now || share->ends == absl::InfiniteFuture()) return std::nullopt;
  return share->ends - now;
}

void OfferShares::Take(uint32_t uid, SessionId session, absl::Time ends, size_t count) {
  all_.Take(ends, count);
  of_user_[uid].Take(ends, count);
  of_session_[{uid, session}].Take(ends, count);
}

void OfferShares::Give(absl::Time now, uint32_t uid, SessionId session, size_t count) {
  all_.Give(now, count);
  GiveSome(of_user_, uid, now, count);
  GiveSome(of_session_, std::make_pair(uid, session), now, count);
}

}  // namespace ferry
