// SPDX-License-Identifier: Apache-2.0
#include "transfer/engine_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transfer/clique/cliques.h"
#include "transfer/clique/group.h"
#include "transfer/convoy.h"
#include "transfer/device_map.h"
#include "transfer/drain_news.h"
#include "transfer/engine_context.h"
#include "transfer/half_book.h"
#include "transfer/member_news.h"
#include "transfer/members.h"
#include "transfer/offer_book.h"
#include "transfer/posted.h"
#include "transfer/tombstones.h"

namespace ferry {
namespace {

ShownState StateOf(const Posted& half) {
  if (half.armed_or_fires()) return ShownState::kArmed;
  if (half.state.Is<HalfState::Offered>()) return ShownState::kOffered;
  if (!half.state.matched()) return ShownState::kWaiting;
  const bool launched = half.state.launched() || half.state.Is<HalfState::Leaving>();
  return launched ? ShownState::kLaunched : ShownState::kMatched;
}

// On ucx a firing is a launch; on the other routes the lanes fire, unseen from here.
bool MayFire(const Posted& half) {
  return (half.state.Is<HalfState::AwaitsFiring>() || half.state.Is<HalfState::Armed>()) &&
         !half.aborted() && !half.state.withdrawn();
}

}  // namespace

std::string WaitsFor(const EngineContext& context, const Posted& half) {
  const bool send = half.spec.side == Side::kSend;
  if (half.state.Is<HalfState::Asking>()) {
    return absl::StrCat(context.NodeName(half.peer), " to say what there is instead of the send");
  }
  if (half.state.withdrawn()) {
    return absl::StrCat("the answer of ", context.NodeName(half.peer), " to its withdrawal");
  }
  if (MayFire(half)) return "both ends to fire it";
  if (half.armed_or_fires()) return half.aborted() ? "its end" : "the end of a firing";
  if (half.state.Is<HalfState::Leaving>()) return "its launch";
  if (half.state.launched()) return half.under_way() ? "its launch" : "the other end";
  if (!half.state.matched()) {
    if (!context.Ours(half) && !context.PeerOf(half.peer).up) {
      return absl::StrCat("the link to ", context.NodeName(half.peer));
    }
    return absl::StrCat(send ? "the receive at " : "the send at ", context.NodeName(half.peer));
  }
  if (half.waits_for_group())
    return absl::StrCat("its turn in a group of ", Describe(CliqueOf(half.spec.key)));
  if (!half.spec.defined && half.spec.defined_value == 0) return "the job that it is a part of";
  if (!half.spec.defined) {
    return absl::StrCat("its data (defined timeline ", half.spec.defined_timeline,
                        " >= ", half.spec.defined_value, ")");
  }
  return absl::StrCat("data at ", context.NodeName(half.peer));
}

TransferRow EngineView::MakeRow(const Posted& half, size_t place) const {
  TransferRow row;
  row.transfer = TransferId(half.id.value() + place);
  row.side = half.spec.side;
  row.key = half.convoy != nullptr ? half.convoy->members[place].key : half.spec.key;
  row.bytes = half.spec.bytes / half.count();
  row.state = kShownStateNames[static_cast<size_t>(StateOf(half))];
  row.prepared = half.spec.prepared;
  row.batch = half.spec.prepared ? half.spec.over_timeline : 0;
  row.fires = MayFire(half);
  row.route = half.route;
  row.posted = half.posted;
  row.waits_for = WaitsFor(context_, half);
  return row;
}

std::vector<TransferRow> EngineView::List(size_t limit) const {
  home_.Check();
  std::vector<TransferRow> rows;
  for (const Posted* half = books_.halves.first(); half != nullptr && rows.size() < limit;
       half = books_.halves.Next(*half)) {
    for (size_t place = 0; place < half->count() && rows.size() < limit; ++place) {
      rows.push_back(MakeRow(*half, place));
    }
  }
  return rows;
}

void EngineView::Visit(absl::FunctionRef<void(const TransferBrief&)> visit) const {
  home_.Check();
  for (const Posted* half = books_.halves.first(); half != nullptr;
       half = books_.halves.Next(*half)) {
    const TransferSpec& spec = half->spec;
    for (size_t place = 0; place < half->count(); ++place) {
      visit({TransferId(half->id.value() + place), spec.side, spec.key.source, spec.key.destination,
             spec.bytes / half->count(), StateOf(*half), half->route, spec.prepared,
             spec.over_timeline, half->posted});
    }
  }
}

std::optional<TransferRow> EngineView::Find(TransferId transfer) const {
  home_.Check();
  const Posted* half = books_.halves.Holding(transfer);
  if (half == nullptr) return std::nullopt;
  return MakeRow(*half, transfer.value() - half->id.value());
}

size_t EngineView::in_flight() const {
  home_.Check();
  return books_.halves.transfers();
}

size_t EngineView::in_flight(SessionId session) const {
  home_.Check();
  return books_.halves.transfers(session);
}

bool EngineView::IsInFlight(TransferId transfer) const {
  home_.Check();
  return books_.halves.Holding(transfer) != nullptr;
}

bool EngineView::Continues(TransferId transfer) const {
  home_.Check();
  const Posted* const half = books_.halves.Holding(transfer);
  return half != nullptr && books_.drains.Continues(*half);
}

std::vector<WaitingOfferRow> EngineView::ListOffers(size_t limit) const {
  home_.Check();
  std::vector<Offered*> waiting = books_.offers.Waiting();
  const size_t count = std::min(limit, waiting.size());
  std::partial_sort(waiting.begin(), waiting.begin() + count, waiting.end(),
                    [](const Offered* a, const Offered* b) {
                      return std::make_pair(a->peer, a->offer.transfer) <
                             std::make_pair(b->peer, b->offer.transfer);
                    });
  std::vector<WaitingOfferRow> rows;
  rows.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Offer& offer = waiting[i]->offer;
    for (uint32_t place = 0; place < offer.key.count && rows.size() < limit; ++place) {
      rows.push_back({context_.NodeName(waiting[i]->peer),
                      TransferId(offer.transfer.value() + place), MemberKey(offer.key, place),
                      offer.bytes / offer.key.count});
    }
  }
  return rows;
}

size_t EngineView::waiting_offers() const {
  home_.Check();
  return books_.offers.waiting();
}

const Members& EngineView::members() const {
  home_.Check();
  return books_.members.members();
}

std::optional<absl::Time> EngineView::DrainsUntil(PeerId peer) const {
  home_.Check();
  return context_.PeerOf(peer).drains_until;
}

bool EngineView::HasMore(PeerId peer) const {
  home_.Check();
  return books_.cliques.HasMore(peer);
}

uint64_t EngineView::ignored_messages() const {
  home_.Check();
  return books_.ignored_messages;
}

absl::StatusOr<std::vector<RouteOption>> EngineView::Explain(absl::Time now, GlobalDeviceId source,
                                                             GlobalDeviceId destination,
                                                             uint64_t bytes) const {
  home_.Check();
  for (GlobalDeviceId device : {source, destination}) {
    if (!context_.devices.owner.contains(device)) {
      return Error(
          absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
          absl::StrCat("routes from device ", source.value(), " to device ", destination.value(),
                       ": no node has device ", device.value(), "; ", Shown(context_.devices)));
    }
  }
  const PeerId self = context_.devices.self;
  const PeerId from = context_.OwnerOf(source);
  const PeerId to = context_.OwnerOf(destination);
  if (from != self && to != self) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
                 absl::StrCat("routes from device ", source.value(), " to device ",
                              destination.value(), ": they belong to ", context_.NodeName(from),
                              from == to ? "" : absl::StrCat(" and ", context_.NodeName(to)),
                              "; ask there"));
  }
  return books_.routes.Explain(now, source, destination, bytes);
}

absl::btree_map<PeerId, size_t> EngineView::OffersHeld() const {
  home_.Check();
  absl::btree_map<PeerId, size_t> held;
  for (const Offered* offered : books_.offers.Waiting()) held[offered->peer] += offered->count();
  return held;
}

uint64_t EngineView::RecordBytesFor(PeerId peer) const {
  home_.Check();
  return books_.offers.record_bytes(peer);
}

size_t EngineView::TombstonesHeld(PeerId peer) const {
  home_.Check();
  return books_.tombstones.size(peer);
}

size_t EngineView::waiting_pairs() const {
  home_.Check();
  return books_.cliques.waiting();
}

size_t EngineView::groups() const {
  home_.Check();
  return books_.cliques.groups();
}

}  // namespace ferry
