// SPDX-License-Identifier: Apache-2.0
// ConvoyRules says which halves of a batch go as one convoy (transfer/convoy.h), and takes convoys
// apart into the transfers that they are of.
//
// A convoy is taken apart only while it is not matched: when another half has one of its keys, when
// one of its transfers is cancelled, at its deadline, or when it has waited for a second. The
// daemon where the convoy was posted takes it apart at once, unless the convoy was offered to a
// peer. Then it asks the destination's daemon by Split. If that has not matched the convoy, it
// takes the offer apart and says Apart, as it does also without being asked. If it has matched the
// convoy, the convoy goes as one, or ends as one, if all of its transfers are cancelled or its
// deadline has passed. What a link carries before Apart is of the convoy, and what comes after
// Apart is of its transfers.
//
// All ids are of the convoy (its first transfer), but for what is named a member's.
//
// Home: control. Owner: TransferEngine.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "transfer/drain_news.h"
#include "transfer/engine_context.h"
#include "transfer/member_news.h"
#include "transfer/posted.h"
#include "transfer/rules/destination_rules.h"
#include "transfer/rules/engine_books.h"
#include "transfer/rules/source_rules.h"

namespace ferry {

class ConvoyRules {
 public:
  // What becomes of a member that is a transfer of its own from now on.
  struct Hooks {
    std::function<void(absl::Time now, Posted& half)> post;  // as if the client had posted it
    std::function<void(Posted& half, absl::Status why)> cancel;
    std::function<void(absl::Time now, PeerId peer, Offer&& offer)> on_offer;
  };
  ConvoyRules(const EngineContext& context, const EngineBooks& books, const MemberNews& members,
              const DrainNews& drains, DestinationRules& destination, SourceRules& source,
              Hooks hooks)
      : context_(context),
        books_(books),
        members_(members),
        drains_(drains),
        destination_(destination),
        source_(source),
        hooks_(std::move(hooks)) {}

  // --- Where the convoy was posted.

  // Of the transfers of a batch that are not posted yet: how many are posted next, and whether as
  // one convoy.
  struct NextOfBatch {
    size_t count = 1;
    bool as_convoy = false;
  };
  NextOfBatch NextOf(absl::Span<const TransferSpec> specs) const;
  // `first`: the id of the first one. Takes what the specs hold.
  void PostConvoy(absl::Time now, TransferId first, absl::Span<TransferSpec> specs);
  // Takes apart a convoy that waits in the matcher, because another half has one of its keys.
  void TakeApart(const Half& waiting);
  // Takes apart a convoy that is not matched: now, or when the peer that it is offered to says so.
  // If `why` is not OK, it also cancels `member` with `why`, or all members if `member` is 0.
  void SplitUp(Posted& convoy, TransferId member = TransferId(),
               absl::Status why = absl::OkStatus());
  // A convoy that is matched goes or ends as one: it is cancelled when all of its members are.
  void CancelMember(Posted& convoy, TransferId member, absl::Status why);
  // False for a message that makes no sense; so is OnSplit.
  bool OnApart(PeerId peer, const Apart& apart);

  // --- At the destination.

  // Takes apart a convoy in the matcher: its members are offers of their own. The convoy is
  // destroyed afterwards.
  void TakeApart(Offered& convoy);
  // Whether an offer that says that it is a convoy's can be one.
  static bool IsConvoy(const Offer& offer);
  // True if no bound, drain or tombstone stops a member. If false, each member's offer is admitted
  // or refused alone.
  bool MayKeepConvoy(PeerId peer, const Offer& convoy) const;
  // Replaces the convoy's offer by one offer a member, each passed to Hooks::on_offer, and tells
  // the peer so (Apart).
  void OfferApart(absl::Time now, PeerId peer, Offer&& convoy);
  // As above, for a convoy that the OfferBook keeps and the matcher does not. It is destroyed
  // afterwards.
  void OfferApart(absl::Time now, Offered& convoy);
  bool OnSplit(PeerId peer, Split split);

 private:
  // Whether transfers that are alike enough for a convoy may go as one.
  bool MayBeConvoy(absl::Span<const TransferSpec> specs) const;
  // Stops making convoys between the key's devices for `no_convoys_for`, since their clients cut
  // batches differently.
  void Pause(const MatchKey& key);
  // Replaces the convoy by its members, each in the convoy's state and in no table beside the
  // HalfBook yet. The convoy is destroyed afterwards. The members' ids, in order.
  std::vector<TransferId> Replace(Posted& convoy);
  // Replaces the convoy by its members and puts each into the matcher and tables. The convoy is
  // destroyed afterwards.
  void TakeApart(Posted& convoy);
  void TakeApartAndCancel(Posted& convoy);
  // Posts its members one by one instead. It is destroyed afterwards.
  void PostApart(absl::Time now, Posted& convoy);
  static void RememberCancel(Convoy& convoy, TransferId member, absl::Status why);
  // Why all of its members are to end: each is cancelled, or the deadline has passed. Else OK.
  static absl::Status WantedEnd(const Posted& convoy);
  // Of a convoy that is not in the matcher: out of the tables, with what is left of its deadline.
  Offer TakeOffer(Offered& offered);

  const EngineContext& context_;
  const EngineBooks& books_;
  const MemberNews& members_;
  const DrainNews& drains_;
  DestinationRules& destination_;
  SourceRules& source_;
  const Hooks hooks_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
