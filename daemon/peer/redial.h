// SPDX-License-Identifier: Apache-2.0
// When and how a link that has no stream is opened again. A link that is wanted is dialled, or, if
// by the names it is the other daemon that dials, knocked at; after each failure later. A link that
// nobody here wants is visited now and then: the other daemon may want it and be unable to dial.
//
// Example: node-b and node-a; node-a dials, by the names. The link is lost, so node-b knocks after
// 100 ms. The knock is answered with OK and no dial comes: it knocks again after 200 ms, then 400
// ms. After the fourth such knock it dials itself.
//
// Decides, and does nothing: PeerLink dials and knocks. Home: control. Owner: PeerLink.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "base/home.h"

namespace ferry {

class Redial {
 public:
  // At most one knock in this time makes us dial a peer, because anybody may knock.
  static constexpr absl::Duration kKnockPause = absl::Seconds(1);
  // After this many knocks that were answered with OK and brought no dial, the daemon that knocks
  // dials itself.
  static constexpr int kVainKnocks = 4;
  // The pause after the first failure; it doubles with each further one, up to kBackoffMax.
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);
  static constexpr absl::Duration kBackoffMax = absl::Seconds(3);

  enum class Step { kNone, kDial, kKnock, kVisit };

  // `dials`: by the names it is this daemon that dials.
  Redial(bool dials, absl::Time visit_at) : dials_(dials), visit_at_(visit_at) {}

  // What to do now, if there is no stream. Each answer is given once: what was dialled has failed
  // when OnLost is called, or OnVisited after a visit.
  Step Take(absl::Time now);
  // When Take may have another answer, if there is no stream.
  absl::Time NextTime() const;

  bool dials() const { return dials_; }
  // The link is opened again whenever it is lost.
  bool wanted() const { return wanted_; }
  // False if it was wanted before.
  bool Want();
  void Unwant();
  // A link that is wanted is opened at `now`, whatever the pause.
  void OpenAt(absl::Time now);

  void OnLost(absl::Time now);
  void OnVisited(absl::Time visit_at) {
    home_.Check();
    visit_at_ = visit_at;
  }
  // Both daemons have proven who they are. From here on the link is wanted, also if the other
  // daemon has knocked: it will want the link again.
  void OnProven();
  // `dialled`: we have opened the stream.
  void OnUp(bool dialled);
  // The peer has another address: what failed at the old one does not count, and a knock there is
  // not waited for.
  void OnMoved();

  // Another daemon has knocked for the peer: it is dialled, unless it was for another knock a
  // moment ago.
  void OnKnocked(absl::Time now);
  // We knock. The number is that of this knock among those of all links, at least 1.
  void Knock(uint64_t number) {
    home_.Check();
    knock_ = number;
  }
  // The knock of this number is answered. False if it is not waited for any more.
  bool EndKnock(uint64_t number);
  // That knock has brought no stream yet. `heard`: it was answered with OK.
  void OnKnockInVain(bool heard, absl::Time now);

 private:
  void BackOff(absl::Time now);

  const bool dials_;
  bool wanted_ = false;
  absl::Time visit_at_;  // when the next visit is due, as long as nobody here wants the link
  absl::Time retry_at_ = absl::InfiniteFuture();
  absl::Duration backoff_ = kBackoffMin;
  absl::Time knocked_ = absl::InfinitePast();  // when a knock last made us dial
  uint64_t knock_ = 0;   // number of our knock that is not answered yet; 0: none is under way
  int vain_knocks_ = 0;  // how many of our knocks were answered with OK and brought no dial
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
