// SPDX-License-Identifier: Apache-2.0
// HalfTables puts halves and offers into the deadlines, the watches, and the list of receives that
// wait for a Sought before their tombstone is reported, and takes them out again. It also takes
// them out of the matcher, into which the caller has put them.
//
// Invariant: a flag of the record (in_matcher, timed, watched) is true exactly while the record is
// in the table, so that ending a half leaves nothing behind.
//
// Home: control. Owner: TransferEngine; its rules call.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/deadlines.h"
#include "transfer/engine_context.h"
#include "transfer/long_waits.h"
#include "transfer/matcher.h"
#include "transfer/offer_book.h"
#include "transfer/posted.h"

namespace ferry {

class HalfTables {
 public:
  HalfTables(const EngineContext& context, TransferMatcher& matcher, OfferBook& offers,
             LongWaits& long_waits)
      : context_(context), matcher_(matcher), offers_(offers), long_waits_(long_waits) {}

  // --- Deadlines. Key of a deadline: (this daemon, half's id), or (peer, offer's id).

  void SetTimer(Posted& half);
  void SetTimer(Offered& offered);
  void StopTimer(Posted& half);
  void StopTimer(Offered& offered);
  // Takes out the first deadline that is not after `nanos` (Unix nanoseconds). The caller clears
  // the record's `timed`.
  std::optional<Due> TakeDue(int64_t nanos) {
    home_.Check();
    return deadlines_.TakeDue(nanos);
  }
  int64_t first_due() const { return deadlines_.first(); }  // or Deadlines::kNever

  // --- The matcher.

  void LeaveMatcher(Posted& half);
  // The matcher has let go of the half.
  void OnMatcherLeft(Posted& half);
  // The offer waits no more in the matcher.
  void ForgetWaiting(Offered& offered);
  // Takes an offer out of all tables and of its book. It is destroyed afterwards.
  void Erase(Offered& offered);

  // --- The words that the half's daemon watches.

  // Watches the half's 'defined' word. A half without a value is not watched: its client calls
  // OnDefined.
  void WatchDefined(Posted& half);
  // The word that allows the next firing of a prepared half.
  void WatchFiring(Posted& half);
  void StopWatching(Posted& half);

  // --- Receives that have sent a Seek when they were posted, and wait: what they are told if the
  // answer brings no successor of the half whose tombstone they found.

  void TellLater(TransferId receive, absl::Status why) {
    home_.Check();
    to_tell_.emplace(receive, std::move(why));
  }
  std::optional<absl::Status> TakeToTell(TransferId receive);

 private:
  const EngineContext& context_;
  TransferMatcher& matcher_;
  OfferBook& offers_;
  LongWaits& long_waits_;
  Deadlines deadlines_;
  absl::flat_hash_map<TransferId, absl::Status> to_tell_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
