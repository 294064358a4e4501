// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/offer_rules.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/matcher.h"

namespace ferry {

bool OfferRules::OnOffer(absl::Time now, PeerId peer, Offer&& offer) {
  home_.Check();
  const TransferId id = offer.transfer;
  if (offer.key.count > 1) {
    if (!convoys_.IsConvoy(offer)) return false;
    if (!convoys_.MayKeepConvoy(peer, offer)) {
      convoys_.OfferApart(now, peer, std::move(offer));
      return true;
    }
  }
  if (absl::Status why = RefusalOf(now, peer, offer); !why.ok()) {
    context_.Send(peer, Done{id, std::move(why), Route::kUnspecified});
    return true;
  }
  const uint64_t bytes = offer.bytes;
  Offered* const added = books_.offers.Add(now, peer, std::move(offer));
  if (added == nullptr) return false;
  Offered& offered = *added;
  FlightRecorder::Get().Record("offer", id, peer.value(), bytes);  // the peer's id
  const Half send{Side::kSend, peer, id};
  TransferMatcher::Result result = books_.matcher.Add(offered.offer.key, send);
  if (result.outcome == TransferMatcher::Outcome::kApart) {
    if (offered.count() > 1) {
      books_.convoy_pauses.Pause(now, offered.offer.key, books_.options.no_convoys_for);
      convoys_.OfferApart(now, offered);
      return true;
    }
    convoys_.TakeApart(result.other);
    result = books_.matcher.Add(offered.offer.key, send);
  }
  if (result.outcome == TransferMatcher::Outcome::kKeyInUse) {
    Answer(offered, OfferError(offered.offer, absl::StatusCode::kAlreadyExists, Reason::kKeyInUse,
                               "a send of this key is waiting already"));
    return true;
  }
  if (result.outcome == TransferMatcher::Outcome::kMatched) {
    Posted* receive = books_.halves.Find(result.other.transfer);
    FERRY_CHECK(receive != nullptr);
    books_.tables.OnMatcherLeft(*receive);
    destination_.Match(*receive, send);
    return true;
  }
  if (drains_.on() && !drains_.MayBeReceived(offered)) {
    books_.matcher.Remove(offered.offer.key, send);
    Answer(offered, drains_.WhyRefused(offered));
    return true;
  }
  LetWait(now, offered);
  return true;
}

void OfferRules::RefuseAll() {
  home_.Check();
  if (!drains_.on()) return;
  std::vector<Offered*> alone;
  for (Offered* offered = books_.offers.first_waiting(); offered != nullptr;
       offered = books_.offers.NextWaiting(*offered)) {
    if (!drains_.MayBeReceived(*offered)) alone.push_back(offered);
  }
  for (Offered* offered : alone) Answer(*offered, drains_.WhyRefused(*offered));
}

absl::Status OfferRules::RefusalOf(absl::Time now, PeerId peer, const Offer& offer) {
  if (context_.owners.Find(offer.key.source) != peer ||
      context_.owners.Find(offer.key.destination) != context_.devices.self) {
    return OfferError(offer, absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
                      absl::StrCat("not from a device of ", context_.NodeName(peer), " to one of ",
                                   context_.NodeName(context_.devices.self)));
  }
  if (offer.layout.bytes() != offer.bytes) {
    return OfferError(offer, absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                      "its layout does not add up to its bytes");
  }
  if (!books_.tombstones.empty() && offer.key.count == 1) {
    const auto tombstone = books_.tombstones.Take(now, Side::kSend, offer.key);
    if (tombstone) return early_.EndOf(*tombstone);
  }
  return books_.offers.RoomFor(now, peer, offer, context_.NodeName(peer));
}

void OfferRules::LetWait(absl::Time now, Offered& offered) {
  if (!books_.offers.MayWait(offered.peer, offered.offer)) {
    books_.matcher.Remove(offered.offer.key, {Side::kSend, offered.peer, offered.offer.transfer});
    return Answer(offered, books_.offers.WhyNotWait(now, offered, context_.NodeName(offered.peer)));
  }
  books_.offers.Wait(now, offered);
  books_.tables.SetTimer(offered);
}

void OfferRules::Answer(Offered& offered, absl::Status why) {
  context_.Send(offered.peer, Done{offered.offer.transfer, std::move(why), Route::kUnspecified});
  books_.tables.Erase(offered);
}

}  // namespace ferry
