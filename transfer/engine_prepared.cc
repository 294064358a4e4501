// SPDX-License-Identifier: Apache-2.0
// Prepared transfers: slots of link pages, firings by Go (ucx), and how a batch ends as one.
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {

void TransferEngine::Impl::ReturnSlot(Posted& send) {
  send.slot = 0;
  peers[send.peer.value()].slots.Return(send.batch);
}

void TransferEngine::Impl::AwaitFiring(Posted& half) {
  StopTimer(half);
  half.state.AwaitFiring();
  if (half.wanted || half.watched || half.withdrawn) return;
  const TransferSpec& spec = half.spec;
  half.watched = true;
  out.watches.push_back({half.id, spec.side == Side::kSend ? spec.key.source : spec.key.destination,
                         spec.over_timeline, half.firings + 1, true});
}

void TransferEngine::Impl::OnWanted(Posted& half) {
  half.wanted = true;
  if (half.spec.side == Side::kSend) {
    Send(half.peer, Ready{half.id});
  } else {
    FireByGo(half);
  }
}

bool TransferEngine::Impl::FireByGo(Posted& receive) {
  Offer& offer = receive.offered->offer;
  if (!receive.state.Is<HalfState::AwaitsFiring>() || !receive.wanted || !offer.ready) return false;
  offer.ready = false;  // of this firing
  LaunchPair(receive, receive.route);
  return true;
}

void TransferEngine::Impl::CountFiring(Posted& half) {
  out.fired.push_back({half.id, half.spec.over_timeline, ++half.firings});
}

void TransferEngine::Impl::FiringOver(Posted& half) {
  CountFiring(half);
  half.wanted = false;
  if (half.spec.side == Side::kReceive) {
    Send(half.peer, Done{half.partner, absl::OkStatus(), half.route});
  }
  AwaitFiring(half);
}

void TransferEngine::Impl::Disarm(Posted& receive, absl::Status ours, absl::Status theirs) {
  absl::Status& for_source = *receive.state.for_source();
  if (!for_source.ok()) return;
  FlightRecorder::Get().Record("disarm", receive.id, receive.peer.value(),
                               static_cast<uint64_t>(ours.code()));
  for_source = std::move(theirs);
  receive.why = ours;  // also if it was being aborted for another route
  Abort(receive, std::move(ours));
}

void TransferEngine::Impl::EndBatches() {
  while (!ended_batches.empty()) {
    const auto [first, batch] = *ended_batches.begin();
    ended_batches.erase(ended_batches.begin());
    for (uint32_t i = 0; i < batch.first; ++i) {
      Posted* half = halves.Find(TransferId(first.value() + i));
      if (half != nullptr) CancelHalf(*half, batch.second);
    }
  }
}

}  // namespace ferry
