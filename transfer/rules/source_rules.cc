// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/source_rules.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {

Posted* SourceRules::FindSendTo(PeerId peer, TransferId id) const {
  home_.Check();
  Posted* half = books_.halves.Find(id);
  if (half == nullptr || half->spec.side != Side::kSend || half->peer != peer ||
      half->state.Is<HalfState::Waiting>() || half->state.Is<HalfState::Leaving>()) {
    return nullptr;
  }
  return half;
}

void SourceRules::SendOffer(absl::Time now, Posted& send) {
  home_.Check();
  const TransferSpec& spec = send.spec;
  send.state.Offer();
  Offer& offer = std::get<Offer>(
      context_.out.messages.emplace_back(send.peer, std::in_place_type<Offer>).second);
  offer.prepared = spec.prepared;
  if (spec.prepared) offer.slot = send.slot = context_.PeerOf(send.peer).slots.Take(send.batch);
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

void SourceRules::SendWithdraw(Posted& send, absl::Status why) {
  home_.Check();
  if (send.why.ok()) send.why = why;
  context_.Send(send.peer, Withdraw{send.id, std::move(why)});
}

bool SourceRules::OnMatched(PeerId peer, const Matched& matched) {
  home_.Check();
  Posted* send = FindSendTo(peer, matched.transfer);
  if (send == nullptr) return false;
  if (!send->state.May(HalfState::Step::kMatch)) return false;
  if (send->state.Is<HalfState::Armed>() && send->at_lane) launches_.StopLaunch(*send);
  send->state.Match();
  books_.tables.LeaveMatcher(*send);
  if (send->spec.prepared) launches_.AwaitFiring(*send);  // on ucx, or it would be launched
  return true;
}

bool SourceRules::MayGo(const Posted& send, const Go& go) const {
  const bool prepared = send.spec.prepared;
  const bool arms = prepared && ArmedByGo(go.route, send.slot != 0);
  if (!send.spec.defined || (!TwoSided(go.route) && !arms)) return false;
  if (prepared && !arms && !send.firings.wanted) return false;
  if (prepared && ByGroups(go.route) && !launches_.MayJoinBundle(send, TransferId(go.tag))) {
    return false;
  }
  if (send.waits_for_group() || !send.state.May(send.launch_step(go.route))) return false;
  return go.attempt > send.attempt &&
         (send.next_go == nullptr || go.attempt > send.next_go->attempt);
}

bool SourceRules::OnGo(PeerId peer, Go go) {
  home_.Check();
  Posted* send = FindSendTo(peer, go.transfer);
  if (send == nullptr || !MayGo(*send, go)) return false;
  FlightRecorder::Get().Record("go", go.transfer, peer.value(), go.attempt);
  books_.tables.LeaveMatcher(*send);
  if (send->bundle != 0 && !ByGroups(send->route)) {  // never launched there
    books_.cliques.bundles().Leave(std::exchange(send->bundle, 0));
  }
  // At once, since the destination may want a firing before our launch before is answered.
  if (send->spec.prepared && ByGroups(go.route)) {
    launches_.JoinBundle(*send, TransferId(go.tag), send->slot);
  }
  if (!send->under_way()) {
    LaunchSend(*send, go);
    return true;
  }
  launches_.StopLaunch(*send);
  send->next_go = std::make_unique<Go>(std::move(go));
  return true;
}

absl::Status SourceRules::StatusOf(PeerId peer, const Posted& send, Done& done) {
  absl::Status status = std::move(done.status);
  if (status.ok() && !send.spec.defined) {
    status = Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                   absl::StrCat(NameOf(send), ": ", context_.NodeName(peer),
                                " calls it done, but its data was never defined"));
  } else if (!status.ok()) {
    const bool echo = !send.why.ok() && ReasonOf(status) == ReasonOf(send.why);
    status = echo ? send.why : Annotate(status, context_.PlaceOf(Side::kReceive, send.spec.key));
    if (echo && HasReason(status, Reason::kWaitingForPeer) && send.state.Is<HalfState::Offered>() &&
        send.count() == 1) {
      std::optional<NearTexts> ours = books_.long_waits.Look(Side::kReceive, send.spec.key);
      books_.long_waits.Remember(Side::kSend, send.spec.key);
      status = books_.long_waits.WithNear(send, status, std::move(ours), std::move(done.near));
    }
  }
  return status;
}

bool SourceRules::OnDone(PeerId peer, Done done) {
  home_.Check();
  Posted* send = FindSendTo(peer, done.transfer);
  if (send == nullptr) return false;
  if (send->spec.prepared && done.status.ok()) {  // of one firing
    HalfState::Firing* const firing = send->state.As<HalfState::Firing>();
    if (firing == nullptr || firing->arrived) return false;
    if (!send->at_lane) {
      launches_.FiringOver(*send);
    } else {
      firing->arrived = true;
    }
    return true;
  }
  books_.tables.LeaveMatcher(*send);
  if (send->waits_for_group()) books_.cliques.TakeRest(*send->load);
  absl::Status status = StatusOf(peer, *send, done);
  const bool same_launch = send->route == done.route;
  if (done.route != Route::kUnspecified) send->route = done.route;
  if (!send->under_way()) {
    ends_.End(*send, std::move(status));
    return true;
  }
  if (!status.ok() || !same_launch) launches_.Abort(*send, absl::AbortedError("it is over"));
  send->state.Leave(std::move(status));
  send->next_go.reset();
  return true;
}

void SourceRules::LaunchSend(Posted& send, const Go& go) {
  const bool armed = send.spec.prepared && !FiredByGo(go.route);
  send.state.Begin(send.launch_step(go.route));
  send.attempt = go.attempt;
  send.route = go.route;
  if (send.late) {  // aborted at once otherwise
    context_.Send(send.peer, SendFailed{send.id, go.attempt, send.why});
    return;
  }
  send.at_lane = LaneLaunch{LaunchRole::kSend};
  Launch& launch = context_.out.launches.emplace_back();
  launch.transfer = send.id;
  launch.attempt = go.attempt;
  launch.route = go.route;
  launch.role = LaunchRole::kSend;
  if (armed) {
    books_.tables.StopTimer(send);
    launch.armed = Armed{send.spec.over_timeline, {}, 0, send.slot, send.bundle, send.id.value()};
  }
  launch.peer = send.peer;
  launch.device = send.spec.key.source;
  launch.remote_device = send.spec.key.destination;
  launch.tag = go.tag;
  launch.priority = go.priority;
  launch.bytes = send.spec.bytes;
  launch.layout = send.spec.layout;
}

void SourceRules::OnSendDone(Posted& send, const absl::Status& answer) {
  home_.Check();
  const HalfState::Firing* const firing = send.state.As<HalfState::Firing>();
  if (firing != nullptr && firing->arrived) launches_.FiringOver(send);
  if (send.next_go != nullptr) {  // the destination is past the launch that was answered now
    const std::unique_ptr<Go> go = std::move(send.next_go);
    return LaunchSend(send, *go);
  }
  if (send.state.Is<HalfState::AwaitsFiring>()) return;  // its firing was over
  if (!answer.ok()) {
    context_.Send(send.peer, SendFailed{send.id, send.attempt, send.why.ok() ? answer : send.why});
  } else if (send.late) {  // past its deadline; the destination still does not say that it is over
    // Not `why`: that may be of a cancel that a Go has overtaken, for which no launch is aborted.
    SendWithdraw(send, ExecutingStatus(send));
  }
}

bool SourceRules::OnHandOver(PeerId peer, const HandOver& message) {
  home_.Check();
  Posted* send = FindSendTo(peer, message.transfer);
  if (send == nullptr || !send->spec.defined || send->spec.prepared || send->at_lane ||
      send->load != nullptr || ByGroups(send->route) ||
      !send->state.May(HalfState::Step::kHandOver)) {
    return false;
  }
  if (!books_.cliques.LedByUs(peer, CliqueOf(send->spec.key))) return false;
  books_.tables.LeaveMatcher(*send);
  send->state.HandOver();
  send->load = std::make_unique<Load>(launches_.MakeLoad(*send));
  return books_.cliques.Carry(*send->load, message.priority, message.unstaged);
}

bool SourceRules::OnTakeBack(PeerId peer, const TakeBack& message) {
  home_.Check();
  Posted* send = FindSendTo(peer, message.transfer);
  // Its last chunk may have been cut meanwhile.
  if (send == nullptr || (!send->waits_for_group() && !send->pinned())) return false;
  books_.cliques.TakeRest(*send->load);
  return true;
}

void SourceRules::GoOn(Posted& send) {
  home_.Check();
  if (send.under_way() || ends_.EndIfLeaving(send)) return;
  if (send.next_go == nullptr) return;  // the destination tells how it ends
  const std::unique_ptr<Go> go = std::move(send.next_go);
  LaunchSend(send, *go);
}

}  // namespace ferry
