// SPDX-License-Identifier: Apache-2.0
#include "transfer/offer_shares.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {
namespace {

// What a waiting offer counts against the bound when a session wants one more. Of M places other
// users leave M - others. Of these a user may have half, because as many must stay free; and a
// session may have half of what its user's other sessions leave of that half:
//     own <= ((M - others) / 2 - user's other) / 2,  which is  4 own + 2 user's other + others <= M
// So when an offer ends, the sum falls by the offer's weight.
constexpr size_t kOwnWeight = 4;    // an offer of this session
constexpr size_t kUserWeight = 2;   // of another session of its user
constexpr size_t kOtherWeight = 1;  // of another user

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
  const size_t user = OfUser(uid), own = OfSession(uid, session);
  // The check is for the last of the `count` offers, with the others counted.
  return kOwnWeight * (own + count - 1) + kUserWeight * (user - own) +
         kOtherWeight * (all() - user);
}

bool OfferShares::Fits(size_t most, uint32_t uid, SessionId session, size_t count) const {
  return Weight(uid, session, count) < most;
}

std::optional<absl::Duration> OfferShares::RetryAfterFor(absl::Time now, size_t most, uint32_t uid,
                                                         SessionId session, size_t count) const {
  const Share* share = &all_;
  size_t weighs = kOtherWeight;  // how much Weight() falls for each offer of `share` that ends
  if (const auto own = of_session_.find({uid, session}); own != of_session_.end()) {
    share = &own->second;
    weighs = kOwnWeight;
  } else if (const auto users = of_user_.find(uid); users != of_user_.end()) {
    share = &users->second;
    weighs = kUserWeight;
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
