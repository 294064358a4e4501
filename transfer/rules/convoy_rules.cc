// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/convoy_rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/flight_recorder.h"
#include "transfer/convoy.h"

namespace ferry {

ConvoyRules::NextOfBatch ConvoyRules::NextOf(absl::Span<const TransferSpec> specs) const {
  home_.Check();
  const size_t length = ConvoyLength(specs);
  return {length, length > 1 && MayBeConvoy(specs.first(length))};
}

bool ConvoyRules::MayBeConvoy(absl::Span<const TransferSpec> specs) const {
  if (!books_.options.convoys || drains_.on()) return false;
  const MatchKey& key = specs.front().key;
  const GlobalDeviceId device = specs.front().side == Side::kSend ? key.destination : key.source;
  if (members_.any_deserted() && members_.IsDeserted(specs.front().side, key)) return false;
  const PeerId other = context_.OwnerOf(device);
  if (other != context_.devices.self) {
    const Peer& peer = context_.PeerOf(other);
    if (!peer.up || peer.drains_until) return false;
  }
  if (books_.convoy_pauses.Contains(context_.now, key)) return false;
  // A half whose partner has ended is told of that by itself.
  return books_.tombstones.empty() ||
         std::none_of(specs.begin(), specs.end(),
                      [&](const auto& spec) { return books_.tombstones.Contains(spec.key); });
}

void ConvoyRules::PostConvoy(absl::Time now, TransferId first, absl::Span<TransferSpec> specs) {
  home_.Check();
  Posted& convoy = books_.halves.AddConvoy(now, first, specs, context_.OtherEndOf(specs.front()));
  FlightRecorder::Get().Record("convoy", convoy.id, convoy.count());
  const Half own{convoy.spec.side, context_.devices.self, convoy.id};
  const TransferMatcher::Result result = books_.matcher.Add(convoy.spec.key, own);
  switch (result.outcome) {
    case TransferMatcher::Outcome::kApart:
    case TransferMatcher::Outcome::kKeyInUse:
      return PostApart(now, convoy);
    case TransferMatcher::Outcome::kMatched:
      return destination_.MatchPosted(convoy, result.other);
    case TransferMatcher::Outcome::kWaiting:
      convoy.in_matcher = true;
      books_.tables.SetTimer(convoy);
      if (!context_.Ours(convoy) && convoy.spec.side == Side::kSend) source_.SendOffer(now, convoy);
  }
}

std::vector<TransferId> ConvoyRules::Replace(Posted& convoy) {
  FlightRecorder::Get().Record("convoy.apart", convoy.id, convoy.count());
  books_.tables.LeaveMatcher(convoy);
  books_.tables.StopTimer(convoy);
  return books_.halves.Replace(convoy);
}

void ConvoyRules::TakeApart(Posted& convoy) {
  home_.Check();
  const bool noticed = convoy.convoy->noticed;
  for (const TransferId id : Replace(convoy)) {
    Posted& half = *books_.halves.Find(id);
    const Half own{half.spec.side, context_.devices.self, id};
    const bool waits =
        books_.matcher.Add(half.spec.key, own).outcome == TransferMatcher::Outcome::kWaiting;
    FERRY_CHECK(waits);  // nothing else has had its key since the convoy waits
    half.in_matcher = true;
    books_.tables.SetTimer(half);
    if (noticed) books_.long_waits.Notice(half);
  }
}

void ConvoyRules::TakeApart(const Half& waiting) {
  home_.Check();
  if (waiting.peer == context_.devices.self) {
    Posted& convoy = *books_.halves.Find(waiting.transfer);
    Pause(convoy.spec.key);
    return TakeApart(convoy);
  }
  Offered& convoy = *books_.offers.Find(waiting.peer, waiting.transfer);
  Pause(convoy.offer.key);
  TakeApart(convoy);
}

void ConvoyRules::TakeApart(Offered& convoy) {
  home_.Check();
  books_.matcher.Remove(convoy.offer.key, {Side::kSend, convoy.peer, convoy.offer.transfer});
  books_.tables.ForgetWaiting(convoy);
  OfferApart(context_.now, convoy);
}

void ConvoyRules::PostApart(absl::Time now, Posted& convoy) {
  Pause(convoy.spec.key);
  for (const TransferId id : Replace(convoy)) hooks_.post(now, *books_.halves.Find(id));
}

void ConvoyRules::CancelMember(Posted& convoy, TransferId member, absl::Status why) {
  home_.Check();
  if (!convoy.state.matched()) return SplitUp(convoy, member, std::move(why));
  RememberCancel(*convoy.convoy, member, std::move(why));
  if (absl::Status end = WantedEnd(convoy); !end.ok()) hooks_.cancel(convoy, std::move(end));
}

void ConvoyRules::RememberCancel(Convoy& convoy, TransferId member, absl::Status why) {
  const bool known = std::any_of(
      convoy.cancels.begin(), convoy.cancels.end(),
      [&](const auto& cancel) { return cancel.first == member || cancel.first == TransferId(); });
  if (!known) convoy.cancels.emplace_back(member, std::move(why));
}

absl::Status ConvoyRules::WantedEnd(const Posted& convoy) {
  if (convoy.late) return convoy.why;
  const auto& cancels = convoy.convoy->cancels;
  const bool all = !cancels.empty() &&
                   (cancels.back().first == TransferId() || cancels.size() == convoy.count());
  return all ? cancels.back().second : absl::OkStatus();
}

void ConvoyRules::SplitUp(Posted& convoy, TransferId member, absl::Status why) {
  home_.Check();
  if (convoy.state.Is<HalfState::Offered>()) {
    if (convoy.state.withdrawn()) return;
    if (!why.ok()) RememberCancel(*convoy.convoy, member, std::move(why));
    absl::Status end = WantedEnd(convoy);
    if (!end.ok()) convoy.state.Withdraw();
    convoy.why = end;
    if (!end.ok() || !convoy.convoy->split) {
      convoy.convoy->split = true;
      context_.Send(convoy.peer, Split{convoy.id, std::move(end)});
    }
    return;
  }
  auto& cancels = convoy.convoy->cancels;
  cancels.clear();
  if (!why.ok()) cancels.emplace_back(member, std::move(why));
  TakeApartAndCancel(convoy);
}

void ConvoyRules::TakeApartAndCancel(Posted& convoy) {
  const TransferId first = convoy.id;
  const uint64_t count = convoy.count();
  const auto cancels = std::move(convoy.convoy->cancels);
  TakeApart(convoy);
  for (const auto& [member, why] : cancels) {
    for (uint64_t place = 0; place < count; ++place) {
      const TransferId id(first.value() + place);
      Posted* const half =
          member == TransferId() || member == id ? books_.halves.Find(id) : nullptr;
      if (half != nullptr) hooks_.cancel(*half, why);
    }
  }
}

bool ConvoyRules::OnApart(PeerId peer, const Apart& apart) {
  home_.Check();
  Posted* const convoy = source_.FindSendTo(peer, apart.transfer);
  if (convoy == nullptr || convoy->count() == 1 || !convoy->state.Is<HalfState::Offered>()) {
    return false;
  }
  if (!convoy->convoy->split) Pause(convoy->spec.key);
  TakeApartAndCancel(*convoy);
  return true;
}

bool ConvoyRules::IsConvoy(const Offer& offer) {
  return offer.ready && !offer.prepared && !offer.continues && offer.bytes > 0 &&
         offer.bytes % offer.key.count == 0 && offer.layout.bytes() == offer.bytes &&
         offer.layout.stretches() <= offer.key.count && !KeysOf(offer.key).empty();
}

bool ConvoyRules::MayKeepConvoy(PeerId peer, const Offer& convoy) const {
  home_.Check();
  if (drains_.on() || !books_.offers.MayWait(peer, convoy)) return false;
  if (books_.tombstones.empty()) return true;
  MatchKey key = convoy.key;
  key.count = 1;
  for (const absl::string_view member : KeysOf(convoy.key)) {
    key.key.assign(member.data(), member.size());
    if (books_.tombstones.Contains(key)) return false;
  }
  return true;
}

bool ConvoyRules::OnSplit(PeerId peer, Split split) {
  home_.Check();
  Offered* const convoy = books_.offers.Find(peer, split.transfer);
  if (convoy == nullptr || convoy->count() == 1) return false;
  if (convoy->in_matcher) {
    TakeApart(*convoy);
  } else if (!split.status.ok()) {
    destination_.OnWithdraw(peer, {split.transfer, std::move(split.status)});
  }
  return true;
}

Offer ConvoyRules::TakeOffer(Offered& offered) {
  books_.tables.StopTimer(offered);
  Offer offer = offered.offer;
  if (offered.deadline_nanos != Deadlines::kNever) {
    offer.deadline = absl::FromUnixNanos(offered.deadline_nanos) - kOfferGrace - context_.now;
  }
  books_.tables.Erase(offered);
  return offer;
}

void ConvoyRules::OfferApart(absl::Time now, PeerId peer, Offer&& convoy) {
  home_.Check();
  context_.Send(peer, Apart{convoy.transfer});
  const std::vector<absl::string_view> keys = KeysOf(convoy.key);
  for (size_t place = 0; place < keys.size(); ++place) {
    Offer offer;
    offer.transfer = TransferId(convoy.transfer.value() + place);
    offer.key = {convoy.key.domain, convoy.key.source, convoy.key.destination,
                 std::string(keys[place])};
    offer.bytes = convoy.bytes / keys.size();
    offer.data_type = convoy.data_type;
    offer.shape = convoy.shape;
    offer.layout = MemberLayout(convoy.layout, place, keys.size());
    offer.deadline = convoy.deadline;
    offer.priority = convoy.priority;
    offer.route = convoy.route;
    offer.uid = convoy.uid;
    hooks_.on_offer(now, peer, std::move(offer));
  }
}

void ConvoyRules::OfferApart(absl::Time now, Offered& convoy) {
  home_.Check();
  const PeerId peer = convoy.peer;
  OfferApart(now, peer, TakeOffer(convoy));
}

void ConvoyRules::Pause(const MatchKey& key) {
  books_.convoy_pauses.Pause(context_.now, key, books_.options.no_convoys_for);
}

}  // namespace ferry
