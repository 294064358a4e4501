// SPDX-License-Identifier: Apache-2.0
// What peers say. A message that makes no sense is counted and otherwise without effect: after a
// cancel or a deadline two messages may cross, and a peer that lies must not get further than its
// own transfers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

// A status from the wire where only a failure makes sense.
absl::Status Failure(absl::Status status) {
  if (!status.ok()) return status;
  return Error(absl::StatusCode::kInternal, Reason::kProtocolError, "no reason was given");
}

}  // namespace

void TransferEngine::Impl::OnPeerUp(absl::Time now, PeerId id, RouteTable table,
                                    PeerFeatures features,
                                    absl::flat_hash_set<GlobalDeviceId> gpus) {
  if (id.value() >= peers.size() || id == devices.self) return;
  Peer& peer = peers[id.value()];
  if (peer.left) return;
  if (peer.up) OnPeerLost(id, absl::UnavailableError("the link was opened anew"), true);
  peer.up = true;
  cliques.OnPeerUp(id);
  peer.features = features;
  routes.OnPeerUp(id, std::move(table), std::move(gpus));
  for (Posted* send : halves.Sorted([&](const Posted& half) {
         return half.peer == id && half.spec.side == Side::kSend &&
                half.state.Is<HalfState::Waiting>();
       })) {
    SendOffer(now, *send);
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
  for (Offered* offered : offers.Of(id)) Erase(*offered);
  tombstones.Forget(id);
  members.OnPeerLost(id);
  cliques.OnPeerLost(id, why);
  for (Posted* half : halves.Sorted([&](const Posted& half) { return half.peer == id; })) {
    half->offered = nullptr;
    if (half->state.Is<HalfState::Asking>()) {
      EndAsked(*half, std::nullopt);
      continue;
    }
    absl::Status lost = UnreachableStatus(*half, why);
    half->slot = 0;  // of a page that is gone
    if (!half->under_way()) {
      End(*half, std::move(lost));
      continue;
    }
    // The peer's memory or ours is in use until the launch is answered.
    if (half->role != LaunchRole::kCopy || half->spec.prepared) Abort(*half, lost);
    half->state.Leave(std::move(lost));
  }
}

void TransferEngine::Impl::SendOffer(absl::Time now, Posted& send) {
  const TransferSpec& spec = send.spec;
  if (spec.prepared && !peers[send.peer.value()].features.prepared) {
    return End(send, Error(absl::StatusCode::kFailedPrecondition, Reason::kProtocolVersion,
                           absl::StrCat(NameOf(send), ": ", context.NodeName(send.peer),
                                        " does not know prepared transfers")));
  }
  send.state.Offer();
  Offer& offer =
      std::get<Offer>(out.messages.emplace_back(send.peer, std::in_place_type<Offer>).second);
  offer.prepared = spec.prepared;
  if (spec.prepared) offer.slot = send.slot = peers[send.peer.value()].slots.Take(send.batch);
  offer.transfer = send.id;
  offer.key = spec.key;
  offer.bytes = spec.bytes;
  offer.data_type = spec.data_type;
  offer.shape = spec.shape;
  offer.layout = spec.layout;
  offer.ready = spec.defined && !spec.prepared;
  offer.deadline = spec.deadline - now;
  offer.priority = spec.priority;
  offer.route = spec.route;
  offer.uid = spec.uid;
  offer.continues = spec.continues != TransferId();
}

void TransferEngine::Impl::OnMessage(absl::Time now, PeerId peer, PeerMessage&& message) {
  bool sense = false;
  if (peer.value() < peers.size() && peers[peer.value()].up) {
    struct Visitor {
      Impl& impl;
      absl::Time now;
      PeerId peer;
      bool operator()(Offer& m) { return impl.OnOffer(now, peer, std::move(m)); }
      bool operator()(Matched& m) { return impl.OnMatched(peer, m); }
      bool operator()(Ready& m) { return impl.OnReady(peer, m); }
      bool operator()(Go& m) { return impl.OnGo(peer, std::move(m)); }
      bool operator()(Done& m) { return impl.OnDone(peer, std::move(m)); }
      bool operator()(Withdraw& m) { return impl.OnWithdraw(peer, std::move(m)); }
      bool operator()(SendFailed& m) { return impl.OnSendFailed(peer, std::move(m)); }
      bool operator()(HandOver& m) { return impl.OnHandOver(peer, m); }
      bool operator()(TakeBack& m) { return impl.OnTakeBack(peer, m); }
      bool operator()(Group& m) { return impl.cliques.OnGroup(peer, m); }
      bool operator()(Granted& m) { return impl.cliques.OnGranted(peer, m); }
      bool operator()(GroupFailed& m) { return impl.cliques.OnGroupFailed(peer, m); }
      bool operator()(AttemptOver& m) { return impl.cliques.OnAttemptOver(peer, m); }
      bool operator()(Evict& m) { return impl.cliques.OnEvict(peer, m); }
      bool operator()(OpenComm& m) { return impl.cliques.comms().OnOpenComm(peer, std::move(m)); }
      bool operator()(WarmComm& m) { return impl.cliques.comms().OnWarmComm(peer, m); }
      bool operator()(Fire& m) { return impl.cliques.bundles().OnFire(peer, m); }
      bool operator()(Seek& m) { return impl.long_waits.OnSeek(peer, m); }
      bool operator()(Sought& m) { return impl.OnSought(peer, std::move(m)); }
      bool operator()(Draining& m) { return impl.OnDraining(peer, m); }
      bool operator()(MembersTold& m) { return impl.members.OnTold(peer, m); }
      bool operator()(Split& m) { return impl.OnSplit(peer, std::move(m)); }
      bool operator()(Apart& m) { return impl.OnApart(peer, m); }
    };
    sense = std::visit(Visitor{*this, now, peer}, message);
    OnCliqueEvents();
  }
  if (!sense) ++ignored;
}

// --- At the destination.

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
    if (tombstone) return EndOf(*tombstone);
  }
  return offers.RoomFor(now, peer, offer, context.NodeName(peer));
}

bool TransferEngine::Impl::OnOffer(absl::Time now, PeerId peer, Offer&& offer) {
  const TransferId id = offer.transfer;
  if (offer.key.count > 1) {
    if (!IsConvoy(offer)) return false;
    if (!MayKeepConvoy(peer, offer)) return OfferApart(now, peer, std::move(offer));
  }
  if (absl::Status why = RefusalOf(now, peer, offer); !why.ok()) {
    Send(peer, Done{id, std::move(why), Route::kUnspecified});
    return true;
  }
  const uint64_t bytes = offer.bytes;
  Offered* const added = offers.Add(now, peer, std::move(offer));
  if (added == nullptr) return false;
  Offered& offered = *added;
  FlightRecorder::Get().Record("offer", id, peer.value(), bytes);  // the peer's id
  const Half source{Side::kSend, peer, id};
  TransferMatcher::Result result = matcher.Add(offered.offer.key, source);
  if (result.outcome == TransferMatcher::Outcome::kApart) {
    if (offered.count() > 1) {
      PauseConvoys(offered.offer.key, options.no_convoys_for);
      return OfferApart(now, peer, TakeOffer(offered));
    }
    TakeApart(result.other);
    result = matcher.Add(offered.offer.key, source);
  }
  if (result.outcome == TransferMatcher::Outcome::kKeyInUse) {
    Answer(offered, OfferError(offered.offer, absl::StatusCode::kAlreadyExists, Reason::kKeyInUse,
                               "a send of this key is waiting already"));
    return true;
  }
  if (result.outcome == TransferMatcher::Outcome::kMatched) {
    Posted* receive = halves.Find(result.other.transfer);
    FERRY_CHECK(receive != nullptr);
    OnMatcherLeft(*receive);
    Match(*receive, source);
    return true;
  }
  if (drains.on() && !drains.MayBeReceived(offered)) {
    matcher.Remove(offered.offer.key, source);
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
  SetTimer(offered);
}

void TransferEngine::Impl::Answer(Offered& offered, absl::Status why) {
  Send(offered.peer, Done{offered.offer.transfer, std::move(why), Route::kUnspecified});
  Erase(offered);
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
    End(*half, drains.WhyEnds(*half));
  }
  return true;
}

bool TransferEngine::Impl::OnReady(PeerId peer, const Ready& ready) {
  Offered* offered = offers.Find(peer, ready.transfer);
  if (offered == nullptr || offered->offer.ready) return false;
  Posted* receive = halves.Find(offered->receive);
  if (offered->offer.prepared && (receive == nullptr || !FiredByGo(receive->route))) {
    return false;
  }
  offered->offer.ready = true;
  if (receive != nullptr) Start(*receive);
  return true;
}

bool TransferEngine::Impl::OnWithdraw(PeerId peer, Withdraw withdraw) {
  Offered* offered = offers.Find(peer, withdraw.transfer);
  if (offered == nullptr) return false;
  absl::Status why = Failure(std::move(withdraw.status));
  Posted* receive = halves.Find(offered->receive);
  if (receive == nullptr) {
    if (offered->count() > 1) return false;
    Done done{withdraw.transfer, why, Route::kUnspecified, std::nullopt};
    if (HasReason(why, Reason::kWaitingForPeer)) {
      done.near = long_waits.Look(Side::kReceive, offered->offer.key);
    }
    const MatchKey key = offered->offer.key;
    Erase(*offered);
    if (HasReason(why, Reason::kWaitingForPeer)) long_waits.Remember(Side::kSend, key);
    LeaveTombstone(Side::kSend, peer, key, why);
    Send(peer, std::move(done));
    return true;
  }
  absl::Status ours = Annotate(why, context.PlaceOf(Side::kSend, receive->spec.key));
  if (!receive->state.launched()) {
    EndPair(*receive, std::move(ours), std::move(why));
  } else if (receive->spec.prepared) {
    Disarm(*receive, std::move(ours), std::move(why));
  } else if (receive->route == Route::kNccl && HasReason(why, Reason::kExecuting)) {
    DropRest(*receive, std::move(ours));
  } else if (receive->role == LaunchRole::kReceive && HasReason(why, Reason::kExecuting)) {
    Abort(*receive, std::move(ours));
  } else {
    WishedTooLate(*receive, std::move(ours));
  }
  return true;
}

bool TransferEngine::Impl::OnSendFailed(PeerId peer, SendFailed failed) {
  Offered* offered = offers.Find(peer, failed.transfer);
  if (offered == nullptr) return false;
  Posted* receive = halves.Find(offered->receive);
  if (receive == nullptr || !receive->outstanding ||
      (receive->role != LaunchRole::kReceive && !receive->spec.prepared) ||
      receive->attempt != failed.attempt) {
    return false;
  }
  const absl::Status theirs = Failure(std::move(failed.status));
  absl::Status ours = Annotate(theirs, context.PlaceOf(Side::kSend, receive->spec.key));
  if (const Bundle* bundle = cliques.bundles().Find(receive->bundle);
      bundle != nullptr && bundle->begun) {
    Disarm(*receive, std::move(ours), theirs);  // no other route goes on from there
  } else {
    Abort(*receive, std::move(ours));
  }
  return true;
}

// --- At the source.

Posted* TransferEngine::Impl::FindSendTo(PeerId peer, TransferId id) const {
  Posted* half = halves.Find(id);
  if (half == nullptr || half->spec.side != Side::kSend || half->peer != peer ||
      half->state.Is<HalfState::Waiting>() || half->state.Is<HalfState::Leaving>()) {
    return nullptr;
  }
  return half;
}

void TransferEngine::Impl::StopLaunch(Posted& send) {
  if (send.aborted || send.pinned()) return;
  OrderAbort(send, absl::AbortedError("the destination tries another launch"));
  send.aborted = true;
}

bool TransferEngine::Impl::OnMatched(PeerId peer, const Matched& matched) {
  Posted* send = FindSendTo(peer, matched.transfer);
  if (send == nullptr) return false;
  if (!send->state.May(HalfState::Step::kMatch)) return false;
  if (send->state.Is<HalfState::Armed>() && send->outstanding) StopLaunch(*send);
  send->state.Match();
  LeaveMatcher(*send);
  if (send->spec.prepared) AwaitFiring(*send);  // on ucx, or it would be launched
  return true;
}

bool TransferEngine::Impl::OnGo(PeerId peer, Go go) {
  Posted* send = FindSendTo(peer, go.transfer);
  const bool prepared = send != nullptr && send->spec.prepared;
  const bool bundles = prepared && go.route == Route::kNccl;
  const bool arms = prepared && ArmedByGo(go.route, send->slot != 0);
  if (send == nullptr || !send->spec.defined || (!TwoSided(go.route) && !arms) ||
      (prepared && !arms && !send->wanted) ||
      (bundles && !MayJoinBundle(*send, TransferId(go.tag))) || send->handed() ||
      !send->state.May(send->launch_step(go.route)) || go.attempt <= send->attempt ||
      (send->next_go != nullptr && go.attempt <= send->next_go->attempt)) {
    return false;
  }
  FlightRecorder::Get().Record("go", go.transfer, peer.value(), go.attempt);
  LeaveMatcher(*send);
  if (send->bundle != 0 && send->route != Route::kNccl) {  // never launched there
    cliques.bundles().Leave(std::exchange(send->bundle, 0));
  }
  // At once, since the destination may want a firing before our launch before is answered.
  if (bundles) JoinBundle(*send, TransferId(go.tag), send->slot);
  if (!send->under_way()) {
    LaunchSend(*send, go);
    return true;
  }
  StopLaunch(*send);
  send->next_go = std::make_unique<Go>(std::move(go));
  return true;
}

bool TransferEngine::Impl::OnDone(PeerId peer, Done done) {
  Posted* send = FindSendTo(peer, done.transfer);
  if (send == nullptr) return false;
  if (send->spec.prepared && done.status.ok()) {  // of one firing
    HalfState::Firing* const firing = send->state.As<HalfState::Firing>();
    if (firing == nullptr || firing->arrived) return false;
    if (!send->outstanding) {
      FiringOver(*send);
    } else {
      firing->arrived = true;
    }
    return true;
  }
  LeaveMatcher(*send);
  if (send->handed()) cliques.TakeRest(*send->load);
  absl::Status status = std::move(done.status);
  if (status.ok() && !send->spec.defined) {
    status = Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                   absl::StrCat(NameOf(*send), ": ", context.NodeName(peer),
                                " calls it done, but its data was never defined"));
  } else if (!status.ok()) {
    const bool echo = !send->why.ok() && ReasonOf(status) == ReasonOf(send->why);
    status = echo ? send->why : Annotate(status, context.PlaceOf(Side::kReceive, send->spec.key));
    if (echo && HasReason(status, Reason::kWaitingForPeer) &&
        send->state.Is<HalfState::Offered>() && send->count() == 1) {
      std::optional<NearTexts> ours = long_waits.Look(Side::kReceive, send->spec.key);
      long_waits.Remember(Side::kSend, send->spec.key);
      status = long_waits.WithNear(*send, status, std::move(ours), std::move(done.near));
    }
  }
  const bool same_launch = send->route == done.route;
  if (done.route != Route::kUnspecified) send->route = done.route;
  if (!send->under_way()) {
    End(*send, std::move(status));
    return true;
  }
  if (!status.ok() || !same_launch) Abort(*send, absl::AbortedError("it is over"));
  send->state.Leave(std::move(status));
  send->next_go.reset();
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
    End(*half, LeftStatus(*half));
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

absl::Status TransferEngine::Impl::LeftStatus(const Posted& half) const {
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat(NameOf(half), ": ",
                            absl::string_view(peers[half.peer.value()].last_error.message())));
}

}  // namespace ferry
