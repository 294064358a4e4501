// SPDX-License-Identifier: Apache-2.0
// OfferRules says, at the destination, what becomes of an offer that a peer sends: it is matched
// with a receive, kept until one is posted, or answered at once by a Done that says why not.
//
// Refused before it is kept (RefusalOf) is an offer between devices that are not the peer's and
// ours, one whose layout does not add up, one whose receive has ended before (Tombstones), and one
// whose bytes do not fit what is kept for the peer (OfferBook::RoomFor). Of those that are kept an
// offer is refused whose key a send has already. An offer that finds its receive is not refused any
// more. Of those that find none (LetWait) an offer is refused that no receive may be posted for any
// more because this daemon drains, and one beyond the number of its peer, user or session
// (OfferBook::MayWait). An offer that makes no sense is ignored and counted.
//
// It owns nothing: OfferBook owns the offers. The engine calls it for messages of peers,
// ConvoyRules for the members of a convoy that is taken apart.
//
// Home: control. Owner: TransferEngine.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/drain_news.h"
#include "transfer/engine_context.h"
#include "transfer/offer_book.h"
#include "transfer/peer_message.h"
#include "transfer/rules/convoy_rules.h"
#include "transfer/rules/destination_rules.h"
#include "transfer/rules/early_ends.h"
#include "transfer/rules/engine_books.h"

namespace ferry {

class OfferRules {
 public:
  OfferRules(const EngineContext& context, const EngineBooks& books, const DrainNews& drains,
             DestinationRules& destination, ConvoyRules& convoys, EarlyEnds& early)
      : context_(context),
        books_(books),
        drains_(drains),
        destination_(destination),
        convoys_(convoys),
        early_(early) {}

  // False for an offer that makes no sense.
  bool OnOffer(absl::Time now, PeerId peer, Offer&& offer);
  // If this daemon drains: answers the offers that wait and that no receive may be posted for.
  void RefuseAll();

 private:
  // The error to answer the offer with at once; OK: keep it. Takes the tombstone of its key.
  absl::Status RefusalOf(absl::Time now, PeerId peer, const Offer& offer);
  // Lets an offer that is in the matcher wait there, or answers it if too many wait.
  void LetWait(absl::Time now, Offered& offered);
  // The end of an offer that is not in the matcher. It is destroyed afterwards.
  void Answer(Offered& offered, absl::Status why);

  const EngineContext& context_;
  const EngineBooks& books_;
  const DrainNews& drains_;
  DestinationRules& destination_;
  ConvoyRules& convoys_;
  EarlyEnds& early_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
