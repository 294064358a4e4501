// SPDX-License-Identifier: Apache-2.0
// Prepared transfers: slots of link pages, firings by Go (ucx), and how a batch ends as one.
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {

uint32_t TransferEngine::Impl::TakeSlot(Posted& send) {
  PreparedSlots& slots = peers[send.peer.value()].slots;
  const auto [entry, first] = slots.batches.try_emplace(send.batch);
  PreparedSlots::Use& use = entry->second;
  if (first) {
    if (!slots.returned.empty()) {
      use.slot = slots.returned.back();
      slots.returned.pop_back();
    } else if (slots.given < kPreparedSlots) {
      use.slot = ++slots.given;
    } else {
      slots.batches.erase(entry);
      return 0;
    }
  }
  ++use.sends;
  return send.slot = use.slot;
}

void TransferEngine::Impl::ReturnSlot(Posted& send) {
  PreparedSlots& slots = peers[send.peer.value()].slots;
  send.slot = 0;
  const auto entry = slots.batches.find(send.batch);
  if (--entry->second.sends > 0) return;
  slots.returned.push_back(entry->second.slot);
  slots.batches.erase(entry);
}

void TransferEngine::Impl::AwaitFiring(Posted& half) {
  StopTimer(half);
  half.stage = Stage::kMatched;
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
  if (receive.stage != Stage::kMatched || !receive.wanted || !offer.ready) return false;
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
  half.arrived = false;
  if (half.spec.side == Side::kReceive) {
    Send(half.peer, Done{half.partner, absl::OkStatus(), half.route});
  }
  AwaitFiring(half);
}

void TransferEngine::Impl::Disarm(Posted& receive, absl::Status ours, absl::Status theirs) {
  if (!receive.late_wish.ok()) return;
  FlightRecorder::Get().Record("disarm", receive.id, receive.peer.value(),
                               static_cast<uint64_t>(ours.code()));
  receive.late_wish = std::move(theirs);
  receive.why = ours;  // also if it was being aborted for another route
  Abort(receive, std::move(ours));
}

void TransferEngine::Impl::EndBatches() {
  while (!ended_batches.empty()) {
    const auto [first, batch] = *ended_batches.begin();
    ended_batches.erase(ended_batches.begin());
    for (uint32_t i = 0; i < batch.first; ++i) {
      Posted* half = Find(TransferId(first.value() + i));
      if (half != nullptr) CancelHalf(*half, batch.second);
    }
  }
}

}  // namespace ferry
