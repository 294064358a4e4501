// SPDX-License-Identifier: Apache-2.0
// LongWaits knows which halves and offers have waited for long, and finds what waits in place of
// the partner: the near misses that an error or a warning names.
//
// Posting costs nothing for it. A half that is older than a second (kYoung) is found by going on
// from the last one in the order of posting (NoticeOld), or when somebody looks (MayLook); only
// then it gets a place among the near misses, and a time when somebody looks whether it still waits
// (its look).
//
// Where a near miss is known: the destination's daemon has all receives, and the offers of every
// send to it. So a send learns of near misses by the Done that answers its Withdraw, and a receive
// by looking here. The destination does not know sends to other daemons, so it asks the source
// (Seek).
//
// Home: control. Owner: TransferEngine, which ends halves; this class ends none.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/deadlines.h"
#include "transfer/engine_context.h"
#include "transfer/half_book.h"
#include "transfer/near_misses.h"
#include "transfer/offer_book.h"
#include "transfer/peer_message.h"

namespace ferry {

class LongWaits {
 public:
  // Called for a convoy older than kYoung. Takes it apart, because near misses are single
  // transfers.
  struct Hooks {
    std::function<void(Posted& convoy)> split_up;
    std::function<void(Offered& convoy)> take_apart;
  };
  LongWaits(const EngineContext& context, HalfBook& halves, OfferBook& offers, Hooks hooks)
      : context_(context), halves_(halves), offers_(offers), hooks_(std::move(hooks)) {}

  // --- Who waits for long.

  // Adds halves and offers older than kYoung to the near misses, and sets the halves' look. At most
  // `most` transfers.
  void NoticeOld(size_t most);
  void Notice(Posted& half);
  // When the next half or offer is older than kYoung.
  absl::Time NextNotice() const;
  // Moves the half's look to `when`; sets it if there was none.
  void SetLook(Posted& half, absl::Time when);
  void StopLook(Posted& half);
  // The next half that is due to be looked at; its look is taken. Null if none is due.
  Posted* TakeLook();
  int64_t next_look() const { return looks_.first(); }  // Unix nanoseconds, or Deadlines::kNever
  // A half whose look is due still waits, and its deadline has not passed: it has waited for long.
  bool HasWaitedLong(const Posted& half) const;
  // The matcher has let go of it: it cannot be found any more.
  void OnMatcherLeft(Posted& half);
  void OnMatcherLeft(Offered& offered);

  // --- What there is instead.

  // What waits here in place of a half of `side`, as NearMisses finds it; none if there is no time
  // for one more search. A search also finds what is not older than kYoung. `counts`: which halves
  // are told of.
  std::optional<NearTexts> Look(Side side, const MatchKey& key,
                                const NearMisses::Counts& counts = nullptr);
  // A half has ended by its deadline. Remembers it for NearMisses::kMemory (10 min); later searches
  // may name it.
  void Remember(Side side, const MatchKey& key) {
    home_.Check();
    near_.Remember(context_.now, side, key);
  }
  // `why` with what there is here and at the other node, as far as anybody has looked.
  absl::Status WithNear(const Posted& half, const absl::Status& why, std::optional<NearTexts> ours,
                        std::optional<NearTexts> theirs) const;
  // The destination asks what there is here in place of a send. False if that makes no sense.
  bool OnSeek(PeerId peer, const Seek& seek);
  // What the half waits for, for how long, and what there is instead.
  std::string WaitText(const Posted& half);

 private:
  void Notice(Offered& offered);
  // Whether there is time for one more search. If so, also what is young can be found.
  bool MayLook();
  std::string NearText(Side side, const MatchKey& wanted, const NearMisses::Miss& miss) const;

  const EngineContext& context_;
  HalfBook& halves_;
  OfferBook& offers_;
  const Hooks hooks_;
  NearMisses near_;
  Deadlines looks_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
