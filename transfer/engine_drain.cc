// SPDX-License-Identifier: Apache-2.0
// Who drains: we, so that nothing new is posted here, or a peer. A send that a draining daemon is
// offered and that no receive of its waits for is refused by it, which knows; a receive ends where
// it was posted as soon as its source has said that it drains, because all sends of the source were
// offered before.
//
// But for what continues something that is in flight, such as the chunks of a file: of that the
// other half may be posted while the daemon drains, as long as anything is in flight there.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {

absl::Status TransferEngine::Impl::DrainStatus(const std::string& what, PeerId node,
                                               absl::Time until) const {
  std::string text = absl::StrCat(what, ": ", NodeName(node), " drains");
  if (until != absl::InfiniteFuture() && until > clock) {
    const absl::Duration left = until - clock;
    const absl::Duration unit = left > absl::Seconds(10) ? absl::Seconds(1) : absl::Milliseconds(1);
    absl::StrAppend(&text, ", for at most ", DurationText(absl::Ceil(left, unit)), " more");
  }
  return Error(absl::StatusCode::kUnavailable, Reason::kDraining,
               absl::StrCat(text,
                            ", and takes nothing new; post again when it serves: after its "
                            "next start, or `ferryctl undrain` there"));
}

void TransferEngine::Impl::SetDraining(std::optional<absl::Time> until) {
  draining = until;
  drained = posted.size() == 0;
  for (size_t peer = 0; peer < peers.size(); ++peer) {
    if (peers[peer].up) SayDraining(PeerId(static_cast<uint32_t>(peer)));
  }
  if (!draining) return;
  std::vector<Offered*> alone;
  for (Offered* offered = offers.first_waiting(); offered != nullptr;
       offered = offers.NextWaiting(*offered)) {
    if (!MayBeReceived(*offered)) alone.push_back(offered);
  }
  for (Offered* offered : alone) RefuseOffer(*offered);
}

// Here, and not when the last half ends: that may be in the midst of a walk over others.
void TransferEngine::Impl::OnDrained() { SetDraining(draining); }

bool TransferEngine::Impl::MayBeReceived(const Offered& offered) const {
  return offered.offer.continues && !drained && clock < *draining;
}

bool TransferEngine::Impl::Continues(const Posted& half) const {
  return half.spec.continues != TransferId() && Holding(half.spec.continues) != nullptr;
}

bool TransferEngine::Impl::MayBeSent(const Posted& receive) const {
  return Continues(receive) && !peers[receive.peer.value()].drained;
}

void TransferEngine::Impl::RefuseOffer(Offered& offered) {
  Send(offered.peer, Done{offered.offer.transfer,
                          DrainStatus(absl::StrCat("offer of ", Describe(offered.offer.key)),
                                      devices.self, *draining),
                          Route::kUnspecified});
  Erase(offered);
}

void TransferEngine::Impl::SayDraining(PeerId id) {
  if (!peers[id.value()].features.drains) return;
  Send(id, Draining{draining.has_value(), draining ? *draining - clock : absl::ZeroDuration(),
                    draining && drained});
}

bool TransferEngine::Impl::OnDraining(PeerId id, const Draining& message) {
  Peer& peer = peers[id.value()];
  FlightRecorder::Get().Record("peer.drains", id.value(), message.on);
  peer.drains_until =
      message.on ? std::optional<absl::Time>(clock + message.left) : std::optional<absl::Time>();
  peer.drained = message.on && message.empty;
  if (!message.on) return true;
  for (Posted* half : Sorted([&](const Posted& half) {
         return half.peer == id && half.spec.side == Side::kReceive && half.in_matcher &&
                !MayBeSent(half);
       })) {
    EndOfDrain(*half);
  }
  return true;
}

void TransferEngine::Impl::EndOfDrain(Posted& receive) {
  End(receive,
      DrainStatus(NameOf(receive), receive.peer, *peers[receive.peer.value()].drains_until));
}

void TransferEngine::SetDraining(absl::Time now, std::optional<absl::Time> until) {
  impl_->clock = now;
  impl_->SetDraining(until);
}

bool TransferEngine::IsInFlight(TransferId transfer) const {
  return impl_->Holding(transfer) != nullptr;
}

bool TransferEngine::Continues(TransferId transfer) const {
  const Posted* half = impl_->Holding(transfer);
  return half != nullptr && impl_->Continues(*half);
}

std::optional<absl::Time> TransferEngine::DrainsUntil(PeerId peer) const {
  return impl_->peers[peer.value()].drains_until;
}

}  // namespace ferry
