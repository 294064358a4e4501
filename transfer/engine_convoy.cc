// SPDX-License-Identifier: Apache-2.0
// Convoys (transfer/convoy.h): which halves of a batch go as one, and how a convoy becomes the
// transfers that it is of.
//
// A convoy is taken apart only while it is not matched: when another half has one of its keys, when
// one of its transfers is cancelled, at its deadline, or when it has waited for a second. The
// daemon where the convoy was posted takes it apart at once, unless the convoy was offered to a
// peer. Then it asks the destination's daemon by Split. If that has not matched the convoy, it
// takes the offer apart and says Apart, as it does also without being asked. If it has matched the
// convoy, the convoy goes as one, or ends as one, if all of its transfers are cancelled or its
// deadline is over. What a link carries before Apart is of the convoy, and what comes after Apart
// is of its transfers.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/flight_recorder.h"
#include "transfer/convoy.h"
#include "transfer/engine_state.h"

namespace ferry {

TransferEngine::Impl::NextOfBatch TransferEngine::Impl::NextOf(
    absl::Span<const TransferSpec> specs) const {
  const size_t length = ConvoyLength(specs);
  return {length, length > 1 && MayBeConvoy(specs.first(length))};
}

bool TransferEngine::Impl::MayBeConvoy(absl::Span<const TransferSpec> specs) const {
  if (!options.convoys || drains.on()) return false;
  const MatchKey& key = specs.front().key;
  const GlobalDeviceId device = specs.front().side == Side::kSend ? key.destination : key.source;
  if (members.any_deserted() && members.IsDeserted(specs.front().side, key)) return false;
  const PeerId other = context.OwnerOf(device);
  if (other != devices.self) {
    const Peer& peer = peers[other.value()];
    if (!peer.up || !peer.features.convoys || peer.drains_until) return false;
  }
  const auto paused = no_convoys_until.find(CliqueOf(key));
  if (paused != no_convoys_until.end() && clock < paused->second) return false;
  // A half whose partner has ended is told of that by itself.
  return tombstones.empty() || std::none_of(specs.begin(), specs.end(), [&](const auto& spec) {
           return tombstones.Contains(spec.key);
         });
}

void TransferEngine::Impl::PauseConvoys(const MatchKey& key, absl::Duration pause) {
  absl::Time& until = no_convoys_until.try_emplace(CliqueOf(key), clock).first->second;
  until = std::max(until, clock + pause);
}

void TransferEngine::Impl::PostConvoy(absl::Time now, TransferId first,
                                      absl::Span<TransferSpec> specs) {
  Posted& convoy = halves.AddConvoy(now, first, specs, OtherEndOf(specs.front()));
  FlightRecorder::Get().Record("convoy", convoy.id, convoy.count());
  const Half own{convoy.spec.side, devices.self, convoy.id};
  const TransferMatcher::Result result = matcher.Add(convoy.spec.key, own);
  switch (result.outcome) {
    case TransferMatcher::Outcome::kApart:
    case TransferMatcher::Outcome::kKeyInUse:
      return PostApart(now, convoy);
    case TransferMatcher::Outcome::kMatched: {
      SetTimer(convoy);
      if (convoy.spec.side == Side::kReceive) return Match(convoy, result.other);
      Posted* const receive = halves.Find(result.other.transfer);
      FERRY_CHECK(receive != nullptr);
      OnMatcherLeft(*receive);
      return Match(*receive, own);
    }
    case TransferMatcher::Outcome::kWaiting:
      convoy.in_matcher = true;
      SetTimer(convoy);
      if (!context.Ours(convoy) && convoy.spec.side == Side::kSend) SendOffer(now, convoy);
  }
}

std::vector<TransferId> TransferEngine::Impl::Replace(Posted& convoy) {
  FlightRecorder::Get().Record("convoy.apart", convoy.id, convoy.count());
  LeaveMatcher(convoy);
  StopTimer(convoy);
  return halves.Replace(convoy);
}

void TransferEngine::Impl::TakeApart(Posted& convoy) {
  const bool noticed = convoy.convoy->noticed;
  for (const TransferId id : Replace(convoy)) {
    Posted& half = *halves.Find(id);
    const Half own{half.spec.side, devices.self, id};
    const bool waits =
        matcher.Add(half.spec.key, own).outcome == TransferMatcher::Outcome::kWaiting;
    FERRY_CHECK(waits);  // nothing else has had its key since the convoy waits
    half.in_matcher = true;
    SetTimer(half);
    if (noticed) long_waits.Notice(half);
  }
}

void TransferEngine::Impl::PostApart(absl::Time now, Posted& convoy) {
  PauseConvoys(convoy.spec.key, options.no_convoys_for);
  for (const TransferId id : Replace(convoy)) PostOne(now, *halves.Find(id));
}

void TransferEngine::Impl::TakeApart(const Half& waiting) {
  if (waiting.peer == devices.self) {
    Posted& convoy = *halves.Find(waiting.transfer);
    PauseConvoys(convoy.spec.key, options.no_convoys_for);
    return TakeApart(convoy);
  }
  Offered& convoy = *offers.Find(waiting.peer, waiting.transfer);
  PauseConvoys(convoy.offer.key, options.no_convoys_for);
  TakeApart(convoy);
}

void TransferEngine::Impl::CancelMember(Posted& convoy, TransferId member, absl::Status why) {
  if (!convoy.state.matched()) return SplitUp(convoy, member, std::move(why));
  RememberCancel(*convoy.convoy, member, std::move(why));
  if (absl::Status end = WantedEnd(convoy); !end.ok()) CancelHalf(convoy, std::move(end));
}

void TransferEngine::Impl::RememberCancel(Convoy& convoy, TransferId member, absl::Status why) {
  const bool known = std::any_of(
      convoy.cancels.begin(), convoy.cancels.end(),
      [&](const auto& cancel) { return cancel.first == member || cancel.first == TransferId(); });
  if (!known) convoy.cancels.emplace_back(member, std::move(why));
}

absl::Status TransferEngine::Impl::WantedEnd(const Posted& convoy) {
  if (convoy.late) return convoy.why;
  const auto& cancels = convoy.convoy->cancels;
  const bool all = !cancels.empty() &&
                   (cancels.back().first == TransferId() || cancels.size() == convoy.count());
  return all ? cancels.back().second : absl::OkStatus();
}

void TransferEngine::Impl::SplitUp(Posted& convoy, TransferId member, absl::Status why) {
  if (convoy.state.Is<HalfState::Offered>()) {
    if (convoy.withdrawn) return;
    if (!why.ok()) RememberCancel(*convoy.convoy, member, std::move(why));
    absl::Status end = WantedEnd(convoy);
    convoy.withdrawn = !end.ok();
    convoy.why = end;
    if (convoy.withdrawn || !convoy.convoy->split) {
      convoy.convoy->split = true;
      Send(convoy.peer, Split{convoy.id, std::move(end)});
    }
    return;
  }
  auto& cancels = convoy.convoy->cancels;
  cancels.clear();
  if (!why.ok()) cancels.emplace_back(member, std::move(why));
  TakeApartAndCancel(convoy);
}

void TransferEngine::Impl::TakeApartAndCancel(Posted& convoy) {
  const TransferId first = convoy.id;
  const uint64_t count = convoy.count();
  const auto cancels = std::move(convoy.convoy->cancels);
  TakeApart(convoy);
  for (const auto& [member, why] : cancels) {
    for (uint64_t place = 0; place < count; ++place) {
      const TransferId id(first.value() + place);
      Posted* const half = member == TransferId() || member == id ? halves.Find(id) : nullptr;
      if (half != nullptr) CancelHalf(*half, why);
    }
  }
}

bool TransferEngine::Impl::OnApart(PeerId peer, const Apart& apart) {
  Posted* const convoy = FindSendTo(peer, apart.transfer);
  if (convoy == nullptr || convoy->count() == 1 || !convoy->state.Is<HalfState::Offered>()) {
    return false;
  }
  if (!convoy->convoy->split) PauseConvoys(convoy->spec.key, options.no_convoys_for);
  TakeApartAndCancel(*convoy);
  return true;
}

// --- At the destination.

bool TransferEngine::Impl::IsConvoy(const Offer& offer) {
  return offer.ready && !offer.prepared && !offer.continues && offer.bytes > 0 &&
         offer.bytes % offer.key.count == 0 && offer.layout.bytes() == offer.bytes &&
         offer.layout.stretches() <= offer.key.count && !KeysOf(offer.key).empty();
}

bool TransferEngine::Impl::MayKeepConvoy(PeerId peer, const Offer& convoy) const {
  if (drains.on() || !offers.MayWait(peer, convoy)) return false;
  if (tombstones.empty()) return true;
  MatchKey key = convoy.key;
  key.count = 1;
  for (const absl::string_view member : KeysOf(convoy.key)) {
    key.key.assign(member.data(), member.size());
    if (tombstones.Contains(key)) return false;
  }
  return true;
}

bool TransferEngine::Impl::OnSplit(PeerId peer, Split split) {
  Offered* const convoy = offers.Find(peer, split.transfer);
  if (convoy == nullptr || convoy->count() == 1) return false;
  if (convoy->in_matcher) {
    TakeApart(*convoy);
  } else if (!split.status.ok()) {
    OnWithdraw(peer, {split.transfer, std::move(split.status)});
  }
  return true;
}

void TransferEngine::Impl::TakeApart(Offered& convoy) {
  const PeerId peer = convoy.peer;
  matcher.Remove(convoy.offer.key, {Side::kSend, peer, convoy.offer.transfer});
  ForgetWaiting(convoy);
  OfferApart(clock, peer, TakeOffer(convoy));
}

Offer TransferEngine::Impl::TakeOffer(Offered& offered) {
  StopTimer(offered);
  Offer offer = offered.offer;
  if (offered.deadline_nanos != kNever) {
    offer.deadline = absl::FromUnixNanos(offered.deadline_nanos) - kOfferGrace - clock;
  }
  Erase(offered);
  return offer;
}

bool TransferEngine::Impl::OfferApart(absl::Time now, PeerId peer, Offer&& convoy) {
  Send(peer, Apart{convoy.transfer});
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
    if (!OnOffer(now, peer, std::move(offer))) ++ignored;
  }
  return true;
}

}  // namespace ferry
