// SPDX-License-Identifier: Apache-2.0
// Views of the engine and the words for its errors. Nothing here changes anything.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/convoy.h"
#include "transfer/device_map.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

TransferEngine::State StateOf(const Posted& half) {
  using State = TransferEngine::State;
  if (half.armed_or_fires()) return State::kArmed;
  if (half.state.Is<HalfState::Offered>()) return State::kOffered;
  if (!half.state.matched()) return State::kWaiting;
  const bool launched = half.state.launched() || half.state.Is<HalfState::Leaving>();
  return launched ? State::kLaunched : State::kMatched;
}

// On ucx a firing is a launch; on the other routes the lanes fire, unseen from here.
bool MayFire(const Posted& half) {
  return (half.state.Is<HalfState::AwaitsFiring>() || half.state.Is<HalfState::Armed>()) &&
         !half.aborted && !half.withdrawn;
}

}  // namespace

const std::string& TransferEngine::Impl::NodeName(PeerId peer) const {
  return ferry::NodeName(devices, peer);
}

std::string TransferEngine::Impl::NameOf(const Posted& half) const {
  const bool send = half.spec.side == Side::kSend;
  return absl::StrCat(send ? "the send" : "the receive", half.count() > 1 ? "s of " : " of ",
                      Describe(half.spec.key));
}

std::string TransferEngine::Impl::PlaceOf(Side side, const MatchKey& key) const {
  const GlobalDeviceId device = side == Side::kSend ? key.source : key.destination;
  return absl::StrCat(side == Side::kSend ? "the send" : "the receive",
                      key.count > 1 ? "s of " : " of ", DescribeKey(key), " at ",
                      NodeName(OwnerOf(device)), " (device ", device.value(), ")");
}

std::string TransferEngine::Impl::WithinText(const Posted& half) const {
  return absl::StrCat(" within ", DurationText(half.spec.deadline - half.posted));
}

std::string TransferEngine::Impl::WaitsFor(const Posted& half) const {
  const bool send = half.spec.side == Side::kSend;
  if (half.state.Is<HalfState::Asking>()) {
    return absl::StrCat(NodeName(half.peer), " to say what there is instead of the send");
  }
  if (half.withdrawn) {
    return absl::StrCat("the answer of ", NodeName(half.peer), " to its withdrawal");
  }
  if (MayFire(half)) return "both ends to fire it";
  if (half.armed_or_fires()) return half.aborted ? "its end" : "the end of a firing";
  if (half.state.Is<HalfState::Leaving>()) return "its launch";
  if (half.state.launched()) return half.under_way() ? "its launch" : "the other end";
  if (!half.state.matched()) {
    if (!Ours(half) && !peers[half.peer.value()].up) {
      return absl::StrCat("the link to ", NodeName(half.peer));
    }
    return absl::StrCat(send ? "the receive at " : "the send at ", NodeName(half.peer));
  }
  if (half.handed())
    return absl::StrCat("its turn in a group of ", Describe(CliqueOf(half.spec.key)));
  if (!half.spec.defined && half.spec.defined_value == 0) return "the job that it is a part of";
  if (!half.spec.defined) {
    return absl::StrCat("its data (defined timeline ", half.spec.defined_timeline,
                        " >= ", half.spec.defined_value, ")");
  }
  return absl::StrCat("data at ", NodeName(half.peer));
}

void TransferEngine::Impl::RecordEnd(const Posted& half, const absl::Status& status) const {
  const char* const what = half.spec.side == Side::kSend ? "end.send" : "end.receive";
  const absl::string_view reason = status.ok() ? "" : ReasonName(ReasonOf(status));
  const size_t members = status.ok() || half.convoy == nullptr ? 0 : half.count();
  for (size_t place = 0; place < std::max<size_t>(members, 1); ++place) {
    const MatchKey& key = members == 0 ? half.spec.key : half.convoy->members[place].key;
    FlightRecorder::Get().Record(what, TransferId(half.id.value() + place), half.peer.value(),
                                 static_cast<uint64_t>(status.code()), reason,
                                 MatchFingerprint(key));
  }
}

TransferEngine::Row TransferEngine::Impl::MakeRow(const Posted& half, size_t place) const {
  Row row;
  row.transfer = TransferId(half.id.value() + place);
  row.side = half.spec.side;
  row.key = half.convoy != nullptr ? half.convoy->members[place].key : half.spec.key;
  row.bytes = half.spec.bytes / half.count();
  row.state = kStateNames[static_cast<size_t>(StateOf(half))];
  row.prepared = half.spec.prepared;
  row.batch = half.spec.prepared ? half.spec.over_timeline : 0;
  row.fires = MayFire(half);
  row.route = half.route;
  row.posted = half.posted;
  row.waits_for = WaitsFor(half);
  return row;
}

std::vector<TransferEngine::Row> TransferEngine::Impl::List(size_t limit) const {
  std::vector<Row> rows;
  for (const Posted* half = in_order.first(); half != nullptr && rows.size() < limit;
       half = in_order.Next(*half)) {
    for (size_t place = 0; place < half->count() && rows.size() < limit; ++place) {
      rows.push_back(MakeRow(*half, place));
    }
  }
  return rows;
}

std::vector<TransferEngine::Row> TransferEngine::List(size_t limit) const {
  return impl_->List(limit);
}

void TransferEngine::Visit(absl::FunctionRef<void(const Brief&)> visit) const {
  for (const Posted* half = impl_->in_order.first(); half != nullptr;
       half = impl_->in_order.Next(*half)) {
    const TransferSpec& spec = half->spec;
    for (size_t place = 0; place < half->count(); ++place) {
      visit({TransferId(half->id.value() + place), spec.side, spec.key.source, spec.key.destination,
             spec.bytes / half->count(), StateOf(*half), half->route, spec.prepared,
             spec.over_timeline, half->posted});
    }
  }
}

std::optional<TransferEngine::Row> TransferEngine::Find(TransferId transfer) const {
  const Posted* half = impl_->Holding(transfer);
  if (half == nullptr) return std::nullopt;
  return impl_->MakeRow(*half, transfer.value() - half->id.value());
}

std::vector<TransferEngine::WaitingOffer> TransferEngine::ListOffers(size_t limit) const {
  std::vector<Offered*> waiting = impl_->offers.Waiting();
  const size_t count = std::min(limit, waiting.size());
  std::partial_sort(waiting.begin(), waiting.begin() + count, waiting.end(),
                    [](const Offered* a, const Offered* b) {
                      return std::make_pair(a->peer, a->offer.transfer) <
                             std::make_pair(b->peer, b->offer.transfer);
                    });
  std::vector<WaitingOffer> rows;
  rows.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Offer& offer = waiting[i]->offer;
    for (uint32_t place = 0; place < offer.key.count && rows.size() < limit; ++place) {
      rows.push_back({impl_->NodeName(waiting[i]->peer), TransferId(offer.transfer.value() + place),
                      MemberKey(offer.key, place), offer.bytes / offer.key.count});
    }
  }
  return rows;
}

size_t TransferEngine::in_flight() const { return impl_->posted.size() + impl_->in_convoys; }

size_t TransferEngine::in_flight(SessionId session) const {
  auto entry = impl_->per_session.find(session);
  return entry == impl_->per_session.end() ? 0 : entry->second.count;
}

size_t TransferEngine::waiting_offers() const { return impl_->offers.waiting(); }

absl::btree_map<PeerId, size_t> TransferEngine::OffersHeld() const {
  absl::btree_map<PeerId, size_t> held;
  for (const Offered* offered : impl_->offers.Waiting()) held[offered->peer] += offered->count();
  return held;
}

uint64_t TransferEngine::KeptFor(PeerId peer) const { return impl_->offers.kept(peer); }

size_t TransferEngine::TombstonesHeld(PeerId peer) const { return impl_->tombstones.size(peer); }

size_t TransferEngine::waiting_pairs() const { return impl_->cliques.waiting(); }

size_t TransferEngine::groups() const { return impl_->cliques.groups(); }

uint64_t TransferEngine::ignored_messages() const { return impl_->ignored; }

absl::StatusOr<std::vector<TransferEngine::RouteOption>> TransferEngine::Explain(
    absl::Time now, GlobalDeviceId source, GlobalDeviceId destination, uint64_t bytes) const {
  for (GlobalDeviceId device : {source, destination}) {
    if (!impl_->devices.owner.contains(device)) {
      return Error(
          absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
          absl::StrCat("routes from device ", source.value(), " to device ", destination.value(),
                       ": no node has device ", device.value(), "; ", Shown(impl_->devices)));
    }
  }
  const PeerId self = impl_->devices.self;
  const PeerId from = impl_->OwnerOf(source);
  const PeerId to = impl_->OwnerOf(destination);
  if (from != self && to != self) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
        absl::StrCat("routes from device ", source.value(), " to device ", destination.value(),
                     ": they belong to ", impl_->NodeName(from),
                     from == to ? "" : absl::StrCat(" and ", impl_->NodeName(to)), "; ask there"));
  }
  return impl_->routes.Explain(now, source, destination, bytes);
}

}  // namespace ferry
