// SPDX-License-Identifier: Apache-2.0
// The public class: what can be looked at. Nothing here changes anything.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/device_map.h"
#include "transfer/engine_state.h"

namespace ferry {

std::vector<TransferRow> TransferEngine::List(size_t limit) const {
  home_.Check();
  home_.Check();
  return impl_->view.List(limit);
}

void TransferEngine::Visit(absl::FunctionRef<void(const TransferBrief&)> visit) const {
  home_.Check();
  home_.Check();
  impl_->view.Visit(visit);
}

std::optional<TransferRow> TransferEngine::Find(TransferId transfer) const {
  home_.Check();
  home_.Check();
  return impl_->view.Find(transfer);
}

std::vector<WaitingOfferRow> TransferEngine::ListOffers(size_t limit) const {
  home_.Check();
  home_.Check();
  return impl_->view.ListOffers(limit);
}

std::string TransferEngine::WaitText(absl::Time now, TransferId transfer) {
  home_.Check();
  home_.Check();
  home_.Check();
  impl_->clock = now;
  const Posted* const half = impl_->halves.Find(transfer);
  return half == nullptr ? "" : impl_->long_waits.WaitText(*half);
}

bool TransferEngine::IsInFlight(TransferId transfer) const {
  home_.Check();
  home_.Check();
  return impl_->halves.Holding(transfer) != nullptr;
}

bool TransferEngine::Continues(TransferId transfer) const {
  home_.Check();
  home_.Check();
  const Posted* half = impl_->halves.Holding(transfer);
  return half != nullptr && impl_->drains.Continues(*half);
}

std::optional<absl::Time> TransferEngine::DrainsUntil(PeerId peer) const {
  home_.Check();
  home_.Check();
  return impl_->peers[peer.value()].drains_until;
}

size_t TransferEngine::in_flight() const {
  home_.Check();
  home_.Check();
  return impl_->halves.transfers();
}

size_t TransferEngine::in_flight(SessionId session) const {
  home_.Check();
  home_.Check();
  return impl_->halves.transfers(session);
}

size_t TransferEngine::waiting_offers() const {
  home_.Check();
  home_.Check();
  return impl_->offers.waiting();
}

absl::btree_map<PeerId, size_t> TransferEngine::OffersHeld() const {
  home_.Check();
  home_.Check();
  return impl_->view.OffersHeld();
}

const Members& TransferEngine::members() const {
  home_.Check();
  home_.Check();
  return impl_->members.members();
}

uint64_t TransferEngine::RecordBytesFor(PeerId peer) const {
  home_.Check();
  home_.Check();
  return impl_->offers.record_bytes(peer);
}

size_t TransferEngine::TombstonesHeld(PeerId peer) const {
  home_.Check();
  home_.Check();
  return impl_->tombstones.size(peer);
}

size_t TransferEngine::waiting_pairs() const {
  home_.Check();
  home_.Check();
  return impl_->cliques.waiting();
}

size_t TransferEngine::groups() const {
  home_.Check();
  home_.Check();
  return impl_->cliques.groups();
}

uint64_t TransferEngine::ignored_messages() const {
  home_.Check();
  home_.Check();
  return impl_->ignored;
}

absl::StatusOr<std::vector<TransferEngine::RouteOption>> TransferEngine::Explain(
    absl::Time now, GlobalDeviceId source, GlobalDeviceId destination, uint64_t bytes) const {
  home_.Check();
  home_.Check();
  home_.Check();
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
