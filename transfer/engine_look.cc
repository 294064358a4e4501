// SPDX-License-Identifier: Apache-2.0
// The public class: what can be looked at. Nothing here changes anything.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/device_map.h"
#include "transfer/engine_state.h"

namespace ferry {

std::vector<TransferRow> TransferEngine::List(size_t limit) const {
  return impl_->view.List(limit);
}

void TransferEngine::Visit(absl::FunctionRef<void(const TransferBrief&)> visit) const {
  impl_->view.Visit(visit);
}

std::optional<TransferRow> TransferEngine::Find(TransferId transfer) const {
  return impl_->view.Find(transfer);
}

std::vector<WaitingOfferRow> TransferEngine::ListOffers(size_t limit) const {
  return impl_->view.ListOffers(limit);
}

std::string TransferEngine::WaitText(absl::Time now, TransferId transfer) {
  impl_->clock = now;
  const Posted* const half = impl_->halves.Find(transfer);
  return half == nullptr ? "" : impl_->long_waits.WaitText(*half);
}

bool TransferEngine::IsInFlight(TransferId transfer) const {
  return impl_->halves.Holding(transfer) != nullptr;
}

bool TransferEngine::Continues(TransferId transfer) const {
  const Posted* half = impl_->halves.Holding(transfer);
  return half != nullptr && impl_->drains.Continues(*half);
}

std::optional<absl::Time> TransferEngine::DrainsUntil(PeerId peer) const {
  return impl_->peers[peer.value()].drains_until;
}

size_t TransferEngine::in_flight() const { return impl_->halves.transfers(); }

size_t TransferEngine::in_flight(SessionId session) const {
  return impl_->halves.transfers(session);
}

size_t TransferEngine::waiting_offers() const { return impl_->offers.waiting(); }

absl::btree_map<PeerId, size_t> TransferEngine::OffersHeld() const {
  return impl_->view.OffersHeld();
}

const Members& TransferEngine::members() const { return impl_->members.members(); }

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
  const PeerId from = impl_->context.OwnerOf(source);
  const PeerId to = impl_->context.OwnerOf(destination);
  if (from != self && to != self) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
        absl::StrCat("routes from device ", source.value(), " to device ", destination.value(),
                     ": they belong to ", impl_->context.NodeName(from),
                     from == to ? "" : absl::StrCat(" and ", impl_->context.NodeName(to)),
                     "; ask there"));
  }
  return impl_->routes.Explain(now, source, destination, bytes);
}

}  // namespace ferry
