// SPDX-License-Identifier: Apache-2.0
// Counts the waiting offers of one peer by user and session, so that nobody takes the places of
// others (a dynamic threshold, as for shared buffers). A user may have at most as many offers as
// places are then free. A session may have at most as many as stay free of its user's part. Of 100
// places one user alone may have 50, and one session of it 25; two users have 33 each; each further
// user finds less. A value; pure.
//
// A user is a uid at the peer's host. The peer says whose an offer is; if it lies, others of that
// peer pay for it, and nobody else.
//
// The time until a session may try again depends on its own offers that wait; if it has none, on
// those of its user; if the user has none either, on those of the whole peer. Endings of other
// users are not counted while the user has offers: further offers of those users take these places.
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
  // Whether `count` more offers of the session may wait, where at most `most` may wait in all.
  bool Fits(size_t most, uint32_t uid, SessionId session, size_t count = 1) const;
  // Time until they fit. Counts endings of the session's waiting offers; if none, its user's; if
  // none, the peer's. Estimated by how fast these ended recently; if none has, it is the time until
  // the first of their deadlines. Nothing if that is not known.
  std::optional<absl::Duration> RetryAfterFor(absl::Time now, size_t most, uint32_t uid,
                                              SessionId session, size_t count = 1) const;
  // `ends`: when these offers are over by themselves.
  void Take(uint32_t uid, SessionId session, absl::Time ends, size_t count = 1);
  void Give(absl::Time now, uint32_t uid, SessionId session, size_t count = 1);

 private:
  struct Share {
    void Take(absl::Time when, size_t more);
    void Give(absl::Time now, size_t some);

    size_t count = 0;
    std::optional<RetryAfter> gone;  // not set: none of the offers has gone yet
    // When the first of the offers ends; once some have gone it may have been one of those.
    absl::Time ends = absl::InfiniteFuture();
  };

  // What waits, before the last of `count` further offers of the session, each offer by its weight
  // (offer_shares.cc). The session may have one more if this is below the bound.
  size_t Weight(uint32_t uid, SessionId session, size_t count) const;

  Share all_;
  absl::flat_hash_map<uint32_t, Share> of_user_;
  // A session belongs to one user, unless the peer lies.
  absl::flat_hash_map<std::pair<uint32_t, SessionId>, Share> of_session_;
};

}  // namespace ferry
