// SPDX-License-Identifier: Apache-2.0
// Pairs, from match to launch to the launch's answer. The destination decides; the source's half of
// a launch (kSend) is here too, because it is answered the same way.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

std::string BytesText(uint64_t bytes) {
  return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
}

}  // namespace

SourceHalf TransferEngine::Impl::SourceOf(const Posted& receive) const {
  if (context.Ours(receive)) {
    const TransferSpec& spec = halves.Find(receive.partner)->spec;
    return {&spec.layout, spec.bytes,    spec.data_type,
            &spec.shape,  spec.route,    spec.priority,
            spec.defined, spec.prepared, 0};
  }
  const Offer& offer = receive.offered->offer;
  return {&offer.layout,
          offer.bytes,
          offer.data_type,
          &offer.shape,
          offer.route,
          offer.priority,
          offer.ready || offer.prepared,
          offer.prepared,
          offer.slot};
}

void TransferEngine::Impl::Match(Posted& receive, Half source) {
  Posted* send = source.peer == devices.self ? halves.Find(source.transfer) : nullptr;
  if (send == nullptr) {
    Offered* offered = offers.Find(source.peer, source.transfer);
    FERRY_CHECK(offered != nullptr);
    if (offered->in_matcher) ForgetWaiting(*offered);  // there first: the matcher has let go of it
    StopTimer(*offered);
    offered->receive = receive.id;
    receive.offered = offered;
  } else {
    OnMatcherLeft(*send);
    send->state.Match();
    send->partner = receive.id;
  }
  receive.state.Match();
  receive.partner = source.transfer;
  FlightRecorder::Get().Record("match", receive.id, source.peer.value(), source.transfer.value());
  if (absl::Status difference = Compare(receive, SourceOf(receive)); !difference.ok()) {
    return EndPair(receive, difference, difference);
  }
  if (!Start(receive) && !context.Ours(receive)) Send(receive.peer, Matched{receive.partner});
}

absl::Status TransferEngine::Impl::Compare(const Posted& receive, const SourceHalf& source) const {
  const TransferSpec& spec = receive.spec;
  auto mismatch = [&](absl::string_view sends, absl::string_view receives) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kTransferMismatch,
                 absl::StrCat("transfer of ", Describe(spec.key), ": the send has ", sends,
                              ", the receive ", receives));
  };
  if (source.prepared != spec.prepared) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kTransferMismatch,
                 absl::StrCat("transfer of ", Describe(spec.key), ": the ",
                              spec.prepared ? "receive" : "send", " is prepared, the ",
                              spec.prepared ? "send" : "receive", " is not"));
  }
  if (source.bytes != spec.bytes) {
    return mismatch(BytesText(source.bytes), BytesText(spec.bytes));
  }
  if (source.data_type != spec.data_type && source.data_type != DataType::kUnspecified &&
      spec.data_type != DataType::kUnspecified) {
    return mismatch(absl::StrCat("type ", DataTypeName(source.data_type)),
                    DataTypeName(spec.data_type));
  }
  if (source.shape->given && spec.shape.given && !(*source.shape == spec.shape)) {
    return mismatch(absl::StrCat("shape ", source.shape->ToString()), spec.shape.ToString());
  }
  if (source.route != spec.route && source.route != Route::kUnspecified &&
      spec.route != Route::kUnspecified) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                 absl::StrCat("transfer of ", Describe(spec.key), ": the send insists on route ",
                              RouteName(source.route), ", the receive on ", RouteName(spec.route)));
  }
  return absl::OkStatus();
}

bool TransferEngine::Impl::Start(Posted& receive) {
  const SourceHalf source = SourceOf(receive);
  if (receive.spec.prepared && FiredByGo(receive.route)) return FireByGo(receive);
  if (!receive.spec.defined || !source.ready) return false;
  const Route route = NextRoute(receive, source);
  if (route == Route::kUnspecified) {
    const absl::Status none = NoRoute(receive, source, absl::OkStatus());
    EndPair(receive, none, none);
  } else if (receive.spec.prepared && FiredByGo(route)) {
    receive.route = route;
    receive.tried |= RouteBit(route);
    AwaitFiring(receive);
    return false;
  } else {
    LaunchPair(receive, route);
  }
  return true;
}

void TransferEngine::Impl::LaunchPair(Posted& receive, Route route) {
  if (route == Route::kNccl && !receive.spec.prepared) {
    receive.tried |= RouteBit(route);
    return HandOverPair(receive);
  }
  const SourceHalf source = SourceOf(receive);
  const bool agreed = TwoSided(route);
  const bool armed = receive.spec.prepared && !FiredByGo(route);
  receive.state.Begin(receive.launch_step(route));
  receive.route = route;
  receive.tried |= RouteBit(route);
  // The source's half of this launch may be answered late, so groups cannot follow it.
  if (agreed) receive.tried |= RouteBit(Route::kNccl);
  const bool bundled = route == Route::kNccl;
  receive.role = agreed || bundled ? LaunchRole::kReceive : LaunchRole::kCopy;
  receive.outstanding = true;
  receive.aborted = false;
  receive.why = absl::OkStatus();
  ++receive.attempt;
  FlightRecorder::Get().Record(armed ? "arm" : "launch", receive.id, receive.peer.value(),
                               receive.spec.bytes);
  if (context.Ours(receive)) {
    Posted& send = *halves.Find(receive.partner);
    send.state.Begin(send.launch_step(route));
    send.route = route;
  }
  Launch& launch = out.launches.emplace_back();
  if (armed) launch.armed = ArmPair(receive, source);
  // What is armed stays until it is aborted: it says nothing of the route's speed.
  if (!armed) BeginEstimate(receive, route);
  if (!armed && route == Route::kMapped) {
    routes.UnmappedOf(receive.peer).OnTry(clock, CliqueOf(receive.spec.key), *source.layout);
  }
  launch.transfer = receive.id;
  launch.attempt = receive.attempt;
  launch.route = route;
  launch.role = receive.role;
  launch.peer = receive.peer;
  launch.device = receive.spec.key.destination;
  launch.remote_device = receive.spec.key.source;
  launch.bytes = receive.spec.bytes;
  launch.priority = PriorityOf(receive, source);
  launch.layout = receive.spec.layout;
  if (agreed) {
    launch.tag = next_tag++;
    Send(receive.peer, Go{receive.partner, receive.attempt, route, launch.tag, launch.priority});
  } else if (!bundled) {
    launch.remote_layout = *source.layout;
  }
}

Armed TransferEngine::Impl::ArmPair(Posted& receive, const SourceHalf& source) {
  const bool bundled = receive.route == Route::kNccl;
  StopTimer(receive);
  Armed armed;
  armed.batch = receive.spec.over_timeline;
  armed.slot = source.slot;
  if (context.Ours(receive)) {
    Posted& send = *halves.Find(receive.partner);
    StopTimer(send);
    armed.source = send.id;
    armed.source_batch = send.spec.over_timeline;
  } else if (!TwoSided(receive.route) && source.slot != 0) {
    Send(receive.peer,
         Go{receive.partner, receive.attempt, receive.route, bundled ? receive.batch.value() : 0});
  }
  if (bundled) {
    Bundle& bundle = JoinBundle(receive, receive.batch, source.slot);
    if (bundle.halves == 1) bundle.priority = PriorityOf(receive, source);
    bundle.direct = bundle.direct && InOnePiece(*source.layout) &&
                    InOnePiece(receive.spec.layout) &&
                    receive.spec.bytes >= options.cliques.cutting.chunk_bytes;
    armed.bundle = receive.bundle;
    armed.place = receive.partner.value();
  }
  return armed;
}

void TransferEngine::Impl::Abort(Posted& half, absl::Status why) {
  // Groups end with their attempt, not for one transfer.
  if (!half.aborted && !half.pinned()) OrderAbort(half, why);
  half.aborted = true;
  if (half.why.ok()) half.why = std::move(why);
}

void TransferEngine::Impl::OnLaunchDone(TransferId id, uint32_t attempt,
                                        const absl::Status& status) {
  Posted* half = halves.Find(id);
  if (half == nullptr || !half->outstanding || half->attempt != attempt) return;
  half->outstanding = false;
  if (half->route == Route::kNccl) cliques.bundles().Leave(std::exchange(half->bundle, 0));
  if (RouteEstimate* const estimate = std::exchange(half->estimate, nullptr)) {
    estimate->OnDone(clock, half->spec.bytes, status.ok());
  }
  if (half->aborted) {  // an abort that was not taken yet must not hit the next launch
    std::erase_if(out.aborts, [&](const auto& abort) { return abort.first == id; });
  }
  if (HalfState::Leaving* const leaving = half->state.As<HalfState::Leaving>()) {
    if (leaving->arrived) CountFiring(*half);  // before it was ended
    End(*half, std::move(leaving->outcome));
  } else if (half->spec.side == Side::kSend) {
    OnSendDone(*half, status);
  } else {
    OnReceiveDone(*half, status);
  }
}

void TransferEngine::Impl::OnReceiveDone(Posted& receive, const absl::Status& answer) {
  EndEstimate(receive, answer.ok());
  const bool prepared = receive.spec.prepared;
  const bool aborted = std::exchange(receive.aborted, false);
  if (answer.ok() && prepared && !aborted) {
    if (receive.state.Is<HalfState::Firing>()) return FiringOver(receive);
    const absl::Status let_go =
        Error(absl::StatusCode::kInternal, Reason::kInternal,
              absl::StrCat(NameOf(receive), ": its lane let go of it without being asked"));
    return EndPair(receive, let_go, ForOther(receive, let_go));
  }
  if (answer.ok() && !prepared) {
    if (receive.route == Route::kMapped) {
      routes.UnmappedOf(receive.peer)
          .OnReached(CliqueOf(receive.spec.key), *SourceOf(receive).layout);
    }
    return EndPair(receive, absl::OkStatus(), absl::OkStatus());
  }
  const absl::Status status =
      (prepared || receive.role == LaunchRole::kReceive) && !receive.why.ok() ? receive.why
                                                                              : answer;
  const absl::Status* const for_source = receive.state.for_source();
  if (for_source != nullptr && !for_source->ok()) {
    return EndPair(receive, status, absl::Status(*for_source));
  }
  const SourceHalf source = SourceOf(receive);
  const bool insisted =
      receive.spec.route != Route::kUnspecified || source.route != Route::kUnspecified;
  // On ucx what fails is a firing: no other lane could go on from there.
  const bool fired = prepared && FiredByGo(receive.route);
  if (!HasReason(status, Reason::kRouteUnavailable) || insisted || fired) {
    return EndPair(receive, status, status);
  }
  // Nothing was moved, so whoever wanted out when it was too late can have it now.
  const absl::Status* const late_wish = receive.state.late_wish();
  if (late_wish != nullptr && !late_wish->ok()) {
    const absl::Status why = *late_wish;
    return EndPair(receive, why, why);
  }
  TryNextRoute(receive, status);
}

void TransferEngine::Impl::TryNextRoute(Posted& receive, const absl::Status& status) {
  if (receive.late) {  // nothing would end the next launch
    const absl::Status why = ExecutingStatus(receive);
    return EndPair(receive, why, ForOther(receive, why));
  }
  const SourceHalf source = SourceOf(receive);
  if (receive.count() > 1) {  // alone they may take a better one than what is next
    PauseConvoys(receive.spec.key, options.no_convoys_after_refusal);
  }
  // Armed ones also want for slots, which come free.
  if (receive.route == Route::kMapped && !receive.spec.prepared) {
    routes.UnmappedOf(receive.peer)
        .OnRefused(clock, CliqueOf(receive.spec.key), *source.layout,
                   std::string(status.message()));
  }
  const Route next = NextRoute(receive, source);
  out.fallbacks.push_back({receive.id, receive.route, next, std::string(status.message())});
  FlightRecorder::Get().Record("fallback", receive.id, static_cast<uint64_t>(receive.route),
                               static_cast<uint64_t>(next));
  if (next != Route::kUnspecified) {
    receive.state.TryAgain();
    if (!Start(receive)) Send(receive.peer, Matched{receive.partner});  // prepared, on ucx
    return;
  }
  const absl::Status none = NoRoute(receive, source, status);
  EndPair(receive, none, none);
}

void TransferEngine::Impl::OnSendDone(Posted& send, const absl::Status& answer) {
  send.aborted = false;
  const HalfState::Firing* const firing = send.state.As<HalfState::Firing>();
  if (firing != nullptr && firing->arrived) FiringOver(send);
  if (send.next_go != nullptr) {  // the destination is past the launch that was answered now
    const std::unique_ptr<Go> go = std::move(send.next_go);
    return LaunchSend(send, *go);
  }
  if (send.state.Is<HalfState::AwaitsFiring>()) return;  // its firing was over
  if (!answer.ok()) {
    Send(send.peer, SendFailed{send.id, send.attempt, send.why.ok() ? answer : send.why});
  } else if (send.late) {  // past its deadline; the destination still does not say that it is over
    // Not `why`: that may be of a cancel that a Go has overtaken, for which no launch is aborted.
    Send(send.peer, Withdraw{send.id, ExecutingStatus(send)});
  }
}

void TransferEngine::Impl::LaunchSend(Posted& send, const Go& go) {
  const bool armed = send.spec.prepared && !FiredByGo(go.route);
  send.state.Begin(send.launch_step(go.route));
  send.attempt = go.attempt;
  send.route = go.route;
  if (send.late) {  // aborted at once otherwise
    Send(send.peer, SendFailed{send.id, go.attempt, send.why});
    return;
  }
  send.role = LaunchRole::kSend;
  send.outstanding = true;
  send.aborted = false;
  Launch& launch = out.launches.emplace_back();
  launch.transfer = send.id;
  launch.attempt = go.attempt;
  launch.route = go.route;
  launch.role = LaunchRole::kSend;
  if (armed) {
    StopTimer(send);
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

void TransferEngine::Impl::EndPair(Posted& receive, absl::Status ours, absl::Status theirs) {
  if (receive.state.matched()) {
    if (context.Ours(receive)) {
      Posted& send = *halves.Find(receive.partner);
      End(send, std::move(theirs));
    } else {
      Erase(*std::exchange(receive.offered, nullptr));
      Send(receive.peer, Done{receive.partner, std::move(theirs), receive.route});
    }
  }
  End(receive, std::move(ours));
}

// --- By which route, as transfer/route_choice says.

bool TransferEngine::Impl::IsUnmapped(const MatchKey& key, const Layout& source) const {
  const PeerId peer = routes.OtherEnd(key.source, key.destination);
  return routes.UnmappedOf(peer).Contains(clock, CliqueOf(key), source);
}

Route TransferEngine::Impl::NextRoute(Posted& receive, const SourceHalf& source) {
  const Route insisted =
      receive.spec.route != Route::kUnspecified ? receive.spec.route : source.route;
  uint8_t excluded = receive.tried;
  if (insisted != Route::kUnspecified) {
    excluded |= static_cast<uint8_t>(~RouteBit(insisted));
  } else if (IsUnmapped(receive.spec.key, *source.layout)) {
    excluded |= RouteBit(Route::kMapped);
  }
  // A bundle is named by the slot.
  if (receive.spec.prepared && source.slot == 0) excluded |= RouteBit(Route::kNccl);
  const MatchKey& key = receive.spec.key;
  const RouteChoice::Picked choice = routes.Pick(clock, key.source, key.destination, source.bytes,
                                                 excluded, receive.spec.prepared);
  if (choice.missed > absl::ZeroDuration()) cliques.comms().Miss(CliqueOf(key), choice.missed);
  return choice.route;
}

void TransferEngine::Impl::BeginEstimate(Posted& receive, Route route) {
  receive.estimate = &routes.EstimateOf(route, receive.spec.key);
  receive.estimate->OnLaunch(clock);
}

void TransferEngine::Impl::EndEstimate(Posted& receive, bool moved) {
  RouteEstimate* const estimate = std::exchange(receive.estimate, nullptr);
  if (estimate == nullptr) return;
  // A latency counts that SMs which are idle gave: RouteChoice adds what busy ones take.
  const bool late = receive.spec.bytes <= RouteEstimate::kLatencyBytes &&
                    routes.SmsBusy(clock, CliqueOf(receive.spec.key));
  estimate->OnDone(clock, receive.spec.bytes, moved && !late);
}

absl::Status TransferEngine::Impl::NoRoute(const Posted& receive, const SourceHalf& source,
                                           const absl::Status& last_failure) const {
  const MatchKey& key = receive.spec.key;
  const Route insisted =
      receive.spec.route != Route::kUnspecified ? receive.spec.route : source.route;
  std::string text = absl::StrCat("transfer of ", Describe(key), ": no route:");
  absl::string_view separator = " ";
  auto add = [&](Route route, absl::string_view why) {
    absl::StrAppend(&text, separator, RouteName(route), " (", why, ")");
    separator = ", ";
  };
  bool insisted_listed = false;
  for (Route route : options.order) {
    if (insisted != Route::kUnspecified && route != insisted) continue;
    insisted_listed = true;
    if (route == receive.route && !last_failure.ok()) {
      add(route, last_failure.message());
    } else if ((receive.tried & RouteBit(route)) != 0) {
      add(route, "its launch was not possible");
    } else if (route == Route::kMapped && IsUnmapped(key, *source.layout)) {
      add(route, routes.UnmappedOf(receive.peer).Find(CliqueOf(key))->why);
    } else if (route == Route::kNccl && receive.spec.prepared && source.slot == 0 &&
               routes.Available(route, key.source, key.destination)) {
      add(route, absl::StrCat("all ", kPreparedSlots, " slots of the link are taken"));
    } else {
      add(route, routes.WhyNot(route, key.source, key.destination));
    }
  }
  if (insisted != Route::kUnspecified && !insisted_listed) {
    add(insisted, routes.WhyNot(insisted, key.source, key.destination));
  }
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable, text);
}

}  // namespace ferry
