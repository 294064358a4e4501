// SPDX-License-Identifier: Apache-2.0
// Peers: their links, their messages, and the offers of their sends. A message that makes no sense
// is counted and otherwise without effect: after a cancel or a deadline two messages may cross, and
// a peer that lies must not get further than its own transfers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {

void TransferEngine::Impl::OnPeerUp(absl::Time now, PeerId id, RouteTable table,
                                    absl::flat_hash_set<GlobalDeviceId> gpus) {
  if (id.value() >= peers.size() || id == devices.self) return;
  Peer& peer = peers[id.value()];
  if (peer.left) return;
  if (peer.up) OnPeerLost(id, absl::UnavailableError("the link was opened anew"), true);
  peer.up = true;
  cliques.OnPeerUp(id);
  routes.OnPeerUp(id, std::move(table), std::move(gpus));
  for (Posted* send : halves.Sorted([&](const Posted& half) {
         return half.peer == id && half.spec.side == Side::kSend &&
                half.state.Is<HalfState::Waiting>();
       })) {
    source.SendOffer(now, *send);
  }
  drains.OnPeerUp(id);
  members.OnPeerUp(id);
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

void TransferEngine::Impl::OnMessage(absl::Time now, PeerId peer, PeerMessage&& message) {
  bool sense = false;
  if (peer.value() < peers.size() && peers[peer.value()].up) {
    struct Visitor {
      Impl& impl;
      absl::Time now;
      PeerId peer;
      bool operator()(Offer& m) { return impl.OnOffer(now, peer, std::move(m)); }
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
      bool operator()(GroupFailed& m) { return impl.cliques.OnGroupFailed(peer, m); }
      bool operator()(AttemptOver& m) { return impl.cliques.OnAttemptOver(peer, m); }
      bool operator()(Evict& m) { return impl.cliques.OnEvict(peer, m); }
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
    sense = std::visit(Visitor{*this, now, peer}, message);
    answers.OnCliqueEvents();
  }
  if (!sense) ++ignored;
}

// --- Offers, at the destination.

absl::Status TransferEngine::Impl::RefusalOf(absl::Time now, PeerId peer, const Offer& offer) {
  if (owners.Find(offer.key.source) != peer || owners.Find(offer.key.destination) != devices.self) {
    return OfferError(offer, absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
                      absl::StrCat("not from a device of ", context.NodeName(peer), " to one of ",
                                   context.NodeName(devices.self)));
  }
  if (offer.layout.bytes() != offer.bytes) {
    return OfferError(offer, absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                      "its layout does not add up to its bytes");
  }
  if (!tombstones.empty() && offer.key.count == 1) {
    const auto tombstone = tombstones.Take(now, Side::kSend, offer.key);
    if (tombstone) return early.EndOf(*tombstone);
  }
  return offers.RoomFor(now, peer, offer, context.NodeName(peer));
}

bool TransferEngine::Impl::OnOffer(absl::Time now, PeerId peer, Offer&& offer) {
  const TransferId id = offer.transfer;
  if (offer.key.count > 1) {
    if (!convoys.IsConvoy(offer)) return false;
    if (!convoys.MayKeepConvoy(peer, offer)) {
      convoys.OfferApart(now, peer, std::move(offer));
      return true;
    }
  }
  if (absl::Status why = RefusalOf(now, peer, offer); !why.ok()) {
    context.Send(peer, Done{id, std::move(why), Route::kUnspecified});
    return true;
  }
  const uint64_t bytes = offer.bytes;
  Offered* const added = offers.Add(now, peer, std::move(offer));
  if (added == nullptr) return false;
  Offered& offered = *added;
  FlightRecorder::Get().Record("offer", id, peer.value(), bytes);  // the peer's id
  const Half send{Side::kSend, peer, id};
  TransferMatcher::Result result = matcher.Add(offered.offer.key, send);
  if (result.outcome == TransferMatcher::Outcome::kApart) {
    if (offered.count() > 1) {
      convoy_pauses.Pause(now, offered.offer.key, options.no_convoys_for);
      convoys.OfferApart(now, offered);
      return true;
    }
    convoys.TakeApart(result.other);
    result = matcher.Add(offered.offer.key, send);
  }
  if (result.outcome == TransferMatcher::Outcome::kKeyInUse) {
    Answer(offered, OfferError(offered.offer, absl::StatusCode::kAlreadyExists, Reason::kKeyInUse,
                               "a send of this key is waiting already"));
    return true;
  }
  if (result.outcome == TransferMatcher::Outcome::kMatched) {
    Posted* receive = halves.Find(result.other.transfer);
    FERRY_CHECK(receive != nullptr);
    tables.OnMatcherLeft(*receive);
    destination.Match(*receive, send);
    return true;
  }
  if (drains.on() && !drains.MayBeReceived(offered)) {
    matcher.Remove(offered.offer.key, send);
    Answer(offered, drains.WhyRefused(offered));
    return true;
  }
  LetWait(now, offered);
  return true;
}

void TransferEngine::Impl::LetWait(absl::Time now, Offered& offered) {
  if (!offers.MayWait(offered.peer, offered.offer)) {
    matcher.Remove(offered.offer.key, {Side::kSend, offered.peer, offered.offer.transfer});
    return Answer(offered, offers.WhyNotWait(now, offered, context.NodeName(offered.peer)));
  }
  offers.Wait(now, offered);
  tables.SetTimer(offered);
}

void TransferEngine::Impl::Answer(Offered& offered, absl::Status why) {
  context.Send(offered.peer, Done{offered.offer.transfer, std::move(why), Route::kUnspecified});
  tables.Erase(offered);
}

void TransferEngine::Impl::RefuseOffers() {
  if (!drains.on()) return;
  std::vector<Offered*> alone;
  for (Offered* offered = offers.first_waiting(); offered != nullptr;
       offered = offers.NextWaiting(*offered)) {
    if (!drains.MayBeReceived(*offered)) alone.push_back(offered);
  }
  for (Offered* offered : alone) Answer(*offered, drains.WhyRefused(*offered));
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

PeerId TransferEngine::Impl::AddPeer(const std::string& name,
                                     absl::Span<const GlobalDeviceId> node_devices) {
  std::vector<std::string>& names = devices.node_names;
  const auto known = std::find(names.begin(), names.end(), name);
  const PeerId id(static_cast<uint32_t>(known - names.begin()));
  if (known == names.end()) {
    FERRY_CHECK(names.size() == peers.size());
    names.push_back(name);
    peers.emplace_back();
    offers.AddPeer();
    tombstones.AddPeer();
    routes.AddPeer();
  } else {
    FERRY_CHECK(id != devices.self && peers[id.value()].left);
  }
  Peer& peer = peers[id.value()];
  peer.left = false;
  peer.last_error = absl::UnavailableError("no connection yet");
  routes.SetLastError(id, peer.last_error);
  for (const GlobalDeviceId device : node_devices) {
    FERRY_CHECK(devices.owner.try_emplace(device, id).second);
    owners.Set(device, id);
  }
  routes.OnDevicesChanged();
  FlightRecorder::Get().Record("peer.added", id.value(), node_devices.size(), 0, name);
  return id;
}

void TransferEngine::Impl::RemovePeer(PeerId id, const absl::Status& why) {
  FERRY_CHECK(id != devices.self && id.value() < peers.size());
  OnPeerLost(id, why, /*established=*/true);
  Peer& peer = peers[id.value()];
  peer.left = true;
  peer.last_error = why;
  routes.SetLastError(id, why);
  // What waited for a link. What was under way on one that is lost has its outcome, and ends when
  // its launch is answered.
  for (Posted* half :
       halves.Sorted([&](const Posted& half) { return half.peer == id && !half.under_way(); })) {
    ends.End(*half, context.LeftStatus(*half));
  }
  tombstones.Forget(id);  // also those of halves that have only waited
  members.Forget(id);
  std::erase(out.wanted_peers, id);
  peer.wanted = false;
  absl::erase_if(devices.owner, [&](const auto& entry) {
    if (entry.second != id) return false;
    owners.Drop(entry.first);
    return true;
  });
  routes.OnDevicesChanged();
  FlightRecorder::Get().Record("peer.removed", id.value(), 0, 0, context.NodeName(id));
}

}  // namespace ferry
