// SPDX-License-Identifier: Apache-2.0
// EarlyEnds ends transfers early: by cancel, by a client's death, by a deadline, because nobody is
// left who could post the partner, or because the partner has ended before.
//
// Before the launch any of these ends a transfer, on both sides if it is matched. Afterwards only a
// deadline does, by aborting a launch that can be aborted; what is prepared is aborted by all.
//
// Home: control. Owner: TransferEngine.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/engine_context.h"
#include "transfer/engine_options.h"
#include "transfer/half_book.h"
#include "transfer/long_waits.h"
#include "transfer/member_news.h"
#include "transfer/offer_book.h"
#include "transfer/posted.h"
#include "transfer/rules/convoy_rules.h"
#include "transfer/rules/destination_rules.h"
#include "transfer/rules/half_ends.h"
#include "transfer/rules/half_tables.h"
#include "transfer/rules/launch_rules.h"
#include "transfer/rules/source_rules.h"
#include "transfer/tombstones.h"

namespace ferry {

class EarlyEnds {
 public:
  // What the rules read and change besides the halves that they are called with.
  struct Books {
    const EngineOptions& options;
    HalfBook& halves;
    OfferBook& offers;
    HalfTables& tables;
    Tombstones& tombstones;
    LongWaits& long_waits;
  };
  EarlyEnds(const EngineContext& context, const Books& books, MemberNews& members,
            LaunchRules& launches, HalfEnds& ends, DestinationRules& destination,
            SourceRules& source, ConvoyRules& convoys)
      : context_(context),
        books_(books),
        members_(members),
        launches_(launches),
        ends_(ends),
        destination_(destination),
        source_(source),
        convoys_(convoys) {}

  // Asks a half to end with `why`. Nothing happens to a half that is ending already. A posted half
  // that is launched goes on, and `why` is told if nothing was moved. A prepared half that is armed
  // is aborted.
  void CancelHalf(Posted& half, absl::Status why);
  // The session's client is gone: its halves end, some now and the rest by OnTime.
  void EndSession(SessionId session, absl::string_view why);
  // Ends the other transfers of prepared batches of which one has ended.
  void EndBatches();

  // Ends what is due, at most `ends_at_once` of each kind.
  void OnTime(absl::Time now);
  // OnTime has nothing to do before this.
  absl::Time NextTime() const;

  // Ends a half that waits for its partner, if nobody is left who could post that. True if the
  // half is on its way out.
  bool EndIfDeserted(Posted& half);
  // Ends a half that is being posted if its partner has ended before. If the half is a receive and
  // the partner was posted at a peer, the peer is asked first (Seek): a successor of the partner
  // may be posted there already, and then its offer arrives before the answer. True if the half has
  // ended.
  bool TellOfTombstone(Posted& half, const HashedKey& key);
  // The status for the partner of the half that left `tombstone`. The caller adds where that half
  // was.
  absl::Status EndOf(const Tombstones::Tombstone& tombstone) const;

  // The peer's answer to a Seek. False for a message that makes no sense.
  bool OnSought(PeerId peer, Sought sought);
  // A receive that has asked a peer is over. `theirs`: the answer, if it has come.
  void EndAsked(Posted& receive, std::optional<NearTexts> theirs);

 private:
  // True if the half waits for its partner, and no peer has an offer of it: it may end at once.
  bool WaitsHere(const Posted& half) const;
  // A half of which WaitsHere() is true has ended. Leaves a tombstone for its partner.
  void LeaveTombstone(Posted& half, const absl::Status& why);
  // Ends a half that is not launched, with the pair if there is one. A send that was offered is
  // withdrawn, also if it is armed or fires, and ends when the peer answers.
  void EndBeforeLaunch(Posted& half, absl::Status why);
  // Goes on with sessions that end, at most `most` halves.
  void EndSome(size_t most);
  // Goes over what waits, at most `most` halves at a time, once a place was deserted.
  void SweepDeserted(size_t most);
  absl::Time NextSweep() const;
  void OnLooks(size_t most);
  void OnDeadline(Posted& half);
  // The deadline of a launched half has passed.
  void OnDeadlineInLaunch(Posted& half);
  void OnDeadline(Offered& offered);
  // Ends a half of which WaitsHere() is true, at its deadline. A receive from a peer first asks the
  // peer what there is instead (Seek), and waits for the answer for a moment.
  void EndAlone(Posted& half, absl::Status why);
  absl::Status DeadlineStatus(const Posted& half) const;

  const EngineContext& context_;
  const Books books_;
  MemberNews& members_;
  LaunchRules& launches_;
  HalfEnds& ends_;
  DestinationRules& destination_;
  SourceRules& source_;
  ConvoyRules& convoys_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
