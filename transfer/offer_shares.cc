// SPDX-License-Identifier: Apache-2.0
#include "transfer/offer_shares.h"

#include "base/check.h"

namespace ferry {
namespace {

template <typename Map, typename Key>
size_t CountOf(const Map& map, const Key& key) {
  const auto entry = map.find(key);
  return entry == map.end() ? 0 : entry->second;
}

template <typename Map, typename Key>
void GiveSome(Map& map, const Key& key, size_t count) {
  const auto entry = map.find(key);
  FERRY_CHECK(entry != map.end() && entry->second >= count);
  entry->second -= count;
  if (entry->second == 0) map.erase(entry);
}

}  // namespace

size_t OfferShares::OfUser(uint32_t uid) const { return CountOf(of_user_, uid); }

size_t OfferShares::OfSession(uint32_t uid, SessionId session) const {
  return CountOf(of_session_, std::make_pair(uid, session));
}

bool OfferShares::Fits(size_t most, uint32_t uid, SessionId session, size_t count) const {
  // Of the places that other users leave, a user may have as many as stay free, which is half;
  // and so may a session of this half.
  // The last of `count` has the others before it.
  const size_t user = OfUser(uid) + count - 1;
  return all_ + count - 1 - user + 2 * (user + OfSession(uid, session) + count - 1) < most;
}

void OfferShares::Take(uint32_t uid, SessionId session, size_t count) {
  all_ += count;
  of_user_[uid] += count;
  of_session_[{uid, session}] += count;
}

void OfferShares::Give(uint32_t uid, SessionId session, size_t count) {
  all_ -= count;
  GiveSome(of_user_, uid, count);
  GiveSome(of_session_, std::make_pair(uid, session), count);
}

}  // namespace ferry
