// SPDX-License-Identifier: Apache-2.0
// Peers: their links and their messages. A message that makes no sense is counted and otherwise
// without effect: after a cancel or a deadline two messages may cross, and a peer that lies must
// not get further than its own transfers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {

void TransferEngine::OnPeerUp(absl::Time now, PeerId id, RouteTable table,
                              absl::flat_hash_set<GlobalDeviceId> gpus) {
  home_.Check();
  impl_->clock = now;
  if (id.value() >= impl_->peers.size() || id == impl_->devices.self) return;
  Peer& peer = impl_->peers[id.value()];
  if (peer.left) return;
  if (peer.up) impl_->OnPeerLost(id, absl::UnavailableError("the link was opened anew"), true);
  peer.up = true;
  impl_->cliques.OnPeerUp(id);
  impl_->routes.OnPeerUp(id, std::move(table), std::move(gpus));
  for (Posted* send : impl_->halves.Sorted([&](const Posted& half) {
         return half.peer == id && half.spec.side == Side::kSend &&
                half.state.Is<HalfState::Waiting>();
       })) {
    impl_->source.SendOffer(now, *send);
  }
  impl_->drains.OnPeerUp(id);
  impl_->members.OnPeerUp(id);
}

void TransferEngine::Impl::OnPeerLost(PeerId id, const absl::Status& why, bool established) {
  if (id.value() >= peers.size() || id == devices.self) return;
  Peer& peer = peers[id.value()];
  peer.last_error = why;
  routes.SetLastError(id, why);
  if (!established || !peer.up) return;
  peer.up = false;
  peer.drains_until.reset();
  peer.drained = false;
  routes.OnPeerLost(id);
  peer.slots = PreparedSlots();
  // What was not taken yet must not go out over the next link.
  std::erase_if(out.messages, [&](const auto& message) { return message.first == id; });
  for (Offered* offered : offers.Of(id)) tables.Erase(*offered);
  tombstones.Forget(id);
  members.OnPeerLost(id);
  cliques.OnPeerLost(id, why);
  for (Posted* half : halves.Sorted([&](const Posted& half) { return half.peer == id; })) {
    half->offered = nullptr;
    if (half->state.Is<HalfState::Asking>()) {
      early.EndAsked(*half, std::nullopt);
      continue;
    }
    absl::Status lost = context.UnreachableStatus(*half, why);
    half->slot = 0;  // of a page that is gone
    if (!half->under_way()) {
      ends.End(*half, std::move(lost));
      continue;
    }
    // The peer's memory or ours is in use until the launch is answered.
    const bool agreed = half->at_lane && half->at_lane->role != LaunchRole::kCopy;
    if (agreed || half->spec.prepared) launches.Abort(*half, lost);
    half->state.Leave(std::move(lost));
  }
}

void TransferEngine::OnMessage(absl::Time now, PeerId peer, PeerMessage&& message) {
  home_.Check();
  impl_->clock = now;
  bool sense = false;
  if (peer.value() < impl_->peers.size() && impl_->peers[peer.value()].up) {
    struct Visitor {
      Impl& impl;
      absl::Time now;
      PeerId peer;
      bool operator()(Offer& m) { return impl.offer_rules.OnOffer(now, peer, std::move(m)); }
      bool operator()(Matched& m) { return impl.source.OnMatched(peer, m); }
      bool operator()(Ready& m) { return impl.destination.OnReady(peer, m); }
      bool operator()(Go& m) { return impl.source.OnGo(peer, std::move(m)); }
      bool operator()(Done& m) { return impl.source.OnDone(peer, std::move(m)); }
      bool operator()(Withdraw& m) { return impl.destination.OnWithdraw(peer, std::move(m)); }
      bool operator()(SendFailed& m) { return impl.destination.OnSendFailed(peer, std::move(m)); }
      bool operator()(HandOver& m) { return impl.source.OnHandOver(peer, m); }
      bool operator()(TakeBack& m) { return impl.source.OnTakeBack(peer, m); }
      bool operator()(Group& m) { return impl.cliques.OnGroup(peer, m); }
      bool operator()(Granted& m) { return impl.cliques.OnGranted(peer, m); }
      bool operator()(GroupFailed& m) { return impl.cliques.attempt_ends().OnGroupFailed(peer, m); }
      bool operator()(AttemptOver& m) { return impl.cliques.attempt_ends().OnAttemptOver(peer, m); }
      bool operator()(Evict& m) { return impl.cliques.attempt_ends().OnEvict(peer, m); }
      bool operator()(OpenComm& m) { return impl.cliques.comms().OnOpenComm(peer, std::move(m)); }
      bool operator()(WarmComm& m) { return impl.cliques.comms().OnWarmComm(peer, m); }
      bool operator()(Fire& m) { return impl.cliques.bundles().OnFire(peer, m); }
      bool operator()(Seek& m) { return impl.long_waits.OnSeek(peer, m); }
      bool operator()(Sought& m) { return impl.early.OnSought(peer, std::move(m)); }
      bool operator()(Draining& m) { return impl.OnDraining(peer, m); }
      bool operator()(MembersTold& m) { return impl.members.OnTold(peer, m); }
      bool operator()(Split& m) { return impl.convoys.OnSplit(peer, std::move(m)); }
      bool operator()(Apart& m) { return impl.convoys.OnApart(peer, m); }
    };
    sense = std::visit(Visitor{*impl_, now, peer}, message);
    impl_->answers.OnCliqueEvents();
  }
  if (!sense) ++impl_->ignored;
}

bool TransferEngine::Impl::OnDraining(PeerId id, const Draining& message) {
  drains.OnTold(id, message);
  if (!message.on) return true;
  for (Posted* half : halves.Sorted([&](const Posted& half) {
         return half.peer == id && half.spec.side == Side::kReceive && half.in_matcher &&
                !drains.MayBeSent(half);
       })) {
    ends.End(*half, drains.WhyEnds(*half));
  }
  return true;
}

// --- Peers that come and leave while the daemon runs: see
// docs/decisions/2026-11-27-peers-come-and-leave.md. One that leaves is one whose link is lost and
// that nobody may name any more; its place stays, for launches that lanes have not answered yet and
// for its next coming.

PeerId TransferEngine::AddPeer(const std::string& name,
                               absl::Span<const GlobalDeviceId> node_devices) {
  home_.Check();
  std::vector<std::string>& names = impl_->devices.node_names;
  const auto known = std::find(names.begin(), names.end(), name);
  const PeerId id(static_cast<uint32_t>(known - names.begin()));
  if (known == names.end()) {
    FERRY_CHECK(names.size() == impl_->peers.size());
    names.push_back(name);
    impl_->peers.emplace_back();
    impl_->offers.AddPeer();
    impl_->tombstones.AddPeer();
    impl_->routes.AddPeer();
  } else {
    FERRY_CHECK(id != impl_->devices.self && impl_->peers[id.value()].left);
  }
  Peer& peer = impl_->peers[id.value()];
  peer.left = false;
  peer.last_error = absl::UnavailableError("no connection yet");
  impl_->routes.SetLastError(id, peer.last_error);
  for (const GlobalDeviceId device : node_devices) {
    FERRY_CHECK(impl_->devices.owner.try_emplace(device, id).second);
    impl_->owners.Set(device, id);
  }
  impl_->routes.OnDevicesChanged();
  FlightRecorder::Get().Record("peer.added", id.value(), node_devices.size(), 0, name);
  return id;
}

void TransferEngine::RemovePeer(absl::Time now, PeerId id, const absl::Status& why) {
  home_.Check();
  impl_->clock = now;
  FERRY_CHECK(id != impl_->devices.self && id.value() < impl_->peers.size());
  impl_->OnPeerLost(id, why, /*established=*/true);
  Peer& peer = impl_->peers[id.value()];
  peer.left = true;
  peer.last_error = why;
  impl_->routes.SetLastError(id, why);
  // What waited for a link. What was under way on one that is lost has its outcome, and ends when
  // its launch is answered.
  for (Posted* half : impl_->halves.Sorted(
           [&](const Posted& half) { return half.peer == id && !half.under_way(); })) {
    impl_->ends.End(*half, impl_->context.LeftStatus(*half));
  }
  impl_->tombstones.Forget(id);  // also those of halves that have only waited
  impl_->members.Forget(id);
  std::erase(impl_->out.wanted_peers, id);
  peer.wanted = false;
  absl::erase_if(impl_->devices.owner, [&](const auto& entry) {
    if (entry.second != id) return false;
    impl_->owners.Drop(entry.first);
    return true;
  });
  impl_->routes.OnDevicesChanged();
  FlightRecorder::Get().Record("peer.removed", id.value(), 0, 0, impl_->context.NodeName(id));
}

}  // namespace ferry
