// SPDX-License-Identifier: Apache-2.0
// How many offers of one peer wait, and whose, so that nobody takes the places of others. No user
// has more of them than it leaves free, and no session more of its user's part than it leaves free
// there (a dynamic threshold, as of shared buffers): a user has half of all at most, two have a
// third each, and each further one finds less; of a user's half one session alone has half. A
// value; pure.
//
// A user is a uid at the peer's host. Whose an offer is, is what the peer says: if it lies, others
// of that peer pay for it, and nobody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "transfer/types.h"

namespace ferry {

class OfferShares {
 public:
  size_t all() const { return all_; }
  size_t OfUser(uint32_t uid) const;
  size_t OfSession(uint32_t uid, SessionId session) const;
  // Whether `count` more of the session may wait, where `most` may in all.
  bool Fits(size_t most, uint32_t uid, SessionId session, size_t count = 1) const;
  void Take(uint32_t uid, SessionId session, size_t count = 1);
  void Give(uint32_t uid, SessionId session, size_t count = 1);

 private:
  size_t all_ = 0;
  absl::flat_hash_map<uint32_t, size_t> of_user_;
  // A session is of one user, unless the peer lies.
  absl::flat_hash_map<std::pair<uint32_t, SessionId>, size_t> of_session_;
};

}  // namespace ferry
