// SPDX-License-Identifier: Apache-2.0
// How many offers of one peer wait, and whose, so that nobody takes the places of others. No user
// has more of them than it leaves free, and no session more of its user's part than it leaves free
// there (a dynamic threshold, as of shared buffers): a user has half of all at most, two have a
// third each, and each further one finds less; of a user's half one session alone has half. A
// value; pure.
//
// A user is a uid at the peer's host. Whose an offer is, is what the peer says: if it lies, others
// of that peer pay for it, and nobody else.
//
// When one of them may be tried again depends on its own kind alone: a place that another user's
// offer leaves is taken by other ones of that user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/retry_after.h"
#include "transfer/types.h"

namespace ferry {

class OfferShares {
 public:
  size_t all() const { return all_.count; }
  size_t OfUser(uint32_t uid) const;
  size_t OfSession(uint32_t uid, SessionId session) const;
  // Whether `count` more of the session may wait, where `most` may in all.
  bool Fits(size_t most, uint32_t uid, SessionId session, size_t count = 1) const;
  // If they do not fit, when they may: once enough of the session's own are over that wait, or of
  // its user's if it has none, or of anybody's. From how fast these went of late; where none did,
  // when the first one is over by its deadline. Nothing if that is not known.
  std::optional<absl::Duration> RetryAfterFor(absl::Time now, size_t most, uint32_t uid,
                                              SessionId session, size_t count = 1) const;
  // `ends`: when they are over by themselves.
  void Take(uint32_t uid, SessionId session, absl::Time ends, size_t count = 1);
  void Give(absl::Time now, uint32_t uid, SessionId session, size_t count = 1);

 private:
  struct Share {
    void Take(absl::Time when, size_t more);
    void Give(absl::Time now, size_t some);

    size_t count = 0;
    std::optional<RetryAfter> gone;  // none has yet
    // The first one's end; once some have gone it may have been theirs.
    absl::Time ends = absl::InfiniteFuture();
  };

  // What the bound is compared with: see Fits.
  size_t Weight(uint32_t uid, SessionId session, size_t count) const;

  Share all_;
  absl::flat_hash_map<uint32_t, Share> of_user_;
  // A session is of one user, unless the peer lies.
  absl::flat_hash_map<std::pair<uint32_t, SessionId>, Share> of_session_;
};

}  // namespace ferry
