// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/destination_rules.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/clique/bundle.h"

namespace ferry {
namespace {

std::string BytesText(uint64_t bytes) {
  return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
}

// Of memory: what needs no staging.
bool InOnePiece(const Layout& layout) {
  return layout.blocks() == nullptr && layout.extents().size() == 1;
}

// A status from the wire where only a failure makes sense.
absl::Status Failure(absl::Status status) {
  if (!status.ok()) return status;
  return Error(absl::StatusCode::kInternal, Reason::kProtocolError, "no reason was given");
}

}  // namespace

DestinationRules::SourceHalf DestinationRules::SourceOf(const Posted& receive) const {
  if (context_.Ours(receive)) {
    const TransferSpec& spec = books_.halves.Find(receive.partner)->spec;
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

void DestinationRules::MatchPosted(Posted& half, Half waiting) {
  home_.Check();
  books_.tables.SetTimer(half);
  if (half.spec.side == Side::kReceive) return Match(half, waiting);
  Posted* const receive = books_.halves.Find(waiting.transfer);
  FERRY_CHECK(receive != nullptr);
  books_.tables.OnMatcherLeft(*receive);
  Match(*receive, {half.spec.side, context_.devices.self, half.id});
}

void DestinationRules::Match(Posted& receive, Half source) {
  home_.Check();
  Posted* send =
      source.peer == context_.devices.self ? books_.halves.Find(source.transfer) : nullptr;
  if (send == nullptr) {
    Offered* offered = books_.offers.Find(source.peer, source.transfer);
    FERRY_CHECK(offered != nullptr);
    if (offered->in_matcher)
      books_.tables.ForgetWaiting(*offered);  // there first: the matcher has let go of it
    books_.tables.StopTimer(*offered);
    offered->receive = receive.id;
    receive.offered = offered;
  } else {
    books_.tables.OnMatcherLeft(*send);
    send->state.Match();
    send->partner = receive.id;
  }
  receive.state.Match();
  receive.partner = source.transfer;
  FlightRecorder::Get().Record("match", receive.id, source.peer.value(), source.transfer.value());
  if (absl::Status difference = Compare(receive, SourceOf(receive)); !difference.ok()) {
    return ends_.EndPair(receive, difference, difference);
  }
  if (!Start(receive) && !context_.Ours(receive))
    context_.Send(receive.peer, Matched{receive.partner});
}

absl::Status DestinationRules::Compare(const Posted& receive, const SourceHalf& source) {
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

bool DestinationRules::Start(Posted& receive) {
  home_.Check();
  const SourceHalf source = SourceOf(receive);
  if (receive.spec.prepared && FiredByGo(receive.route)) return FireByGo(receive);
  if (!receive.spec.defined || !source.ready) return false;
  const Route route = NextRoute(receive, source);
  if (route == Route::kUnspecified) {
    const absl::Status none = NoRoute(receive, source, absl::OkStatus());
    ends_.EndPair(receive, none, none);
  } else if (receive.spec.prepared && FiredByGo(route)) {
    receive.route = route;
    receive.tried |= RouteBit(route);
    launches_.AwaitFiring(receive);
    return false;
  } else {
    LaunchPair(receive, route);
  }
  return true;
}

void DestinationRules::LaunchPair(Posted& receive, Route route) {
  if (ByGroups(route) && !receive.spec.prepared) {
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
  if (agreed) receive.tried |= RouteBits(ByGroups);
  const bool bundled = ByGroups(route);
  const LaunchRole role = agreed || bundled ? LaunchRole::kReceive : LaunchRole::kCopy;
  receive.at_lane = LaneLaunch{role};
  receive.why = absl::OkStatus();
  ++receive.attempt;
  FlightRecorder::Get().Record(armed ? "arm" : "launch", receive.id, receive.peer.value(),
                               receive.spec.bytes);
  if (context_.Ours(receive)) {
    Posted& send = *books_.halves.Find(receive.partner);
    send.state.Begin(send.launch_step(route));
    send.route = route;
  }
  Launch& launch = context_.out.launches.emplace_back();
  if (armed) launch.armed = ArmPair(receive, source);
  // What is armed stays until it is aborted: it says nothing of the route's speed.
  if (!armed) launches_.BeginEstimate(receive, route);
  if (!armed && MapsSource(route)) {
    books_.routes.UnmappedOf(receive.peer)
        .OnTry(context_.now, CliqueOf(receive.spec.key), *source.layout);
  }
  launch.transfer = receive.id;
  launch.attempt = receive.attempt;
  launch.route = route;
  launch.role = role;
  launch.peer = receive.peer;
  launch.device = receive.spec.key.destination;
  launch.remote_device = receive.spec.key.source;
  launch.bytes = receive.spec.bytes;
  launch.priority = PriorityOf(receive, source);
  launch.prompt = receive.spec.prompt;
  launch.layout = receive.spec.layout;
  if (agreed) {
    launch.tag = next_tag_++;
    context_.Send(receive.peer,
                  Go{receive.partner, receive.attempt, route, launch.tag, launch.priority});
  } else if (!bundled) {
    launch.remote_layout = *source.layout;
  }
}

Armed DestinationRules::ArmPair(Posted& receive, const SourceHalf& source) {
  const bool bundled = ByGroups(receive.route);
  books_.tables.StopTimer(receive);
  Armed armed;
  armed.batch = receive.spec.over_timeline;
  armed.slot = source.slot;
  if (context_.Ours(receive)) {
    Posted& send = *books_.halves.Find(receive.partner);
    books_.tables.StopTimer(send);
    armed.source = send.id;
    armed.source_batch = send.spec.over_timeline;
  } else if (!TwoSided(receive.route) && source.slot != 0) {
    context_.Send(receive.peer, Go{receive.partner, receive.attempt, receive.route,
                                   bundled ? receive.batch.value() : 0});
  }
  if (bundled) {
    Bundle& bundle = launches_.JoinBundle(receive, receive.batch, source.slot);
    if (bundle.halves == 1) bundle.priority = PriorityOf(receive, source);
    bundle.unstaged = bundle.unstaged && InOnePiece(*source.layout) &&
                      InOnePiece(receive.spec.layout) &&
                      receive.spec.bytes >= books_.options.cliques.cutting.direct_bytes;
    armed.bundle = receive.bundle;
    armed.place = receive.partner.value();
  }
  return armed;
}

// Groups are of one route: NCCL's.
void DestinationRules::HandOverPair(Posted& receive) {
  FERRY_CHECK(receive.load == nullptr);  // a route is tried once
  receive.state.HandOver();
  receive.route = Route::kNccl;
  receive.why = absl::OkStatus();
  launches_.BeginEstimate(receive, Route::kNccl);
  const SourceHalf source = SourceOf(receive);
  const bool unstaged = InOnePiece(*source.layout) && InOnePiece(receive.spec.layout);
  receive.load = std::make_unique<Load>(launches_.MakeLoad(receive));
  books_.cliques.Carry(*receive.load, PriorityOf(receive, source), unstaged);
}

void DestinationRules::OnReceiveDone(Posted& receive, const absl::Status& answer,
                                     LaneLaunch launch) {
  home_.Check();
  launches_.EndEstimate(receive, answer.ok());
  const bool prepared = receive.spec.prepared;
  if (answer.ok() && prepared && !launch.aborted) {
    if (receive.state.Is<HalfState::Firing>()) return launches_.FiringOver(receive);
    const absl::Status let_go =
        Error(absl::StatusCode::kInternal, Reason::kInternal,
              absl::StrCat(NameOf(receive), ": its lane let go of it without being asked"));
    return ends_.EndPair(receive, let_go, ends_.ForOther(receive, let_go));
  }
  if (answer.ok() && !prepared) {
    if (MapsSource(receive.route)) {
      books_.routes.UnmappedOf(receive.peer)
          .OnReached(CliqueOf(receive.spec.key), *SourceOf(receive).layout);
    }
    return ends_.EndPair(receive, absl::OkStatus(), absl::OkStatus());
  }
  const absl::Status status =
      (prepared || launch.role == LaunchRole::kReceive) && !receive.why.ok() ? receive.why : answer;
  const absl::Status* const for_source = receive.state.for_source();
  if (for_source != nullptr && !for_source->ok()) {
    return ends_.EndPair(receive, status, absl::Status(*for_source));
  }
  const SourceHalf source = SourceOf(receive);
  const bool insisted =
      receive.spec.route != Route::kUnspecified || source.route != Route::kUnspecified;
  // On ucx what fails is a firing: no other lane could go on from there.
  const bool fired = prepared && FiredByGo(receive.route);
  if (!HasReason(status, Reason::kRouteUnavailable) || insisted || fired) {
    return ends_.EndPair(receive, status, status);
  }
  // Nothing was moved, so whoever wanted out when it was too late can have it now.
  const absl::Status* const late_wish = receive.state.late_wish();
  if (late_wish != nullptr && !late_wish->ok()) {
    const absl::Status why = *late_wish;
    return ends_.EndPair(receive, why, why);
  }
  TryNextRoute(receive, status);
}

void DestinationRules::TryNextRoute(Posted& receive, const absl::Status& status) {
  if (receive.late) {  // nothing would end the next launch
    const absl::Status why = ExecutingStatus(receive);
    return ends_.EndPair(receive, why, ends_.ForOther(receive, why));
  }
  const SourceHalf source = SourceOf(receive);
  if (receive.count() > 1) {  // alone they may take a better one than what is next
    books_.convoy_pauses.Pause(context_.now, receive.spec.key,
                               books_.options.no_convoys_after_refusal);
  }
  // Armed ones also want for slots, which come free.
  if (MapsSource(receive.route) && !receive.spec.prepared) {
    books_.routes.UnmappedOf(receive.peer)
        .OnRefused(context_.now, CliqueOf(receive.spec.key), *source.layout,
                   std::string(status.message()));
  }
  const Route next = NextRoute(receive, source);
  context_.out.fallbacks.push_back(
      {receive.id, receive.route, next, std::string(status.message())});
  FlightRecorder::Get().Record("fallback", receive.id, static_cast<uint64_t>(receive.route),
                               static_cast<uint64_t>(next));
  if (next != Route::kUnspecified) {
    receive.state.TryAgain();
    if (!Start(receive)) context_.Send(receive.peer, Matched{receive.partner});  // prepared, on ucx
    return;
  }
  const absl::Status none = NoRoute(receive, source, status);
  ends_.EndPair(receive, none, none);
}

Route DestinationRules::NextRoute(Posted& receive, const SourceHalf& source) {
  const Route insisted =
      receive.spec.route != Route::kUnspecified ? receive.spec.route : source.route;
  uint8_t excluded = receive.tried;
  if (insisted != Route::kUnspecified) {
    excluded |= static_cast<uint8_t>(~RouteBit(insisted));
  } else if (IsUnmapped(receive.spec.key, *source.layout)) {
    excluded |= RouteBits(MapsSource);
  }
  // A bundle is named by the slot.
  if (receive.spec.prepared && source.slot == 0) excluded |= RouteBits(ByGroups);
  const MatchKey& key = receive.spec.key;
  const RouteChoice::Picked choice = books_.routes.Pick(
      context_.now, key.source, key.destination, source.bytes, excluded, receive.spec.prepared);
  if (choice.missed > absl::ZeroDuration())
    books_.cliques.comms().Miss(CliqueOf(key), choice.missed);
  return choice.route;
}

bool DestinationRules::IsUnmapped(const MatchKey& key, const Layout& source) const {
  const PeerId peer = books_.routes.OtherEnd(key.source, key.destination);
  return books_.routes.UnmappedOf(peer).Contains(context_.now, CliqueOf(key), source);
}

absl::Status DestinationRules::NoRoute(const Posted& receive, const SourceHalf& source,
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
  for (Route route : books_.options.order) {
    if (insisted != Route::kUnspecified && route != insisted) continue;
    insisted_listed = true;
    if (route == receive.route && !last_failure.ok()) {
      add(route, last_failure.message());
    } else if ((receive.tried & RouteBit(route)) != 0) {
      add(route, "its launch was not possible");
    } else if (MapsSource(route) && IsUnmapped(key, *source.layout)) {
      add(route, books_.routes.UnmappedOf(receive.peer).Find(CliqueOf(key))->why);
    } else if (ByGroups(route) && receive.spec.prepared && source.slot == 0 &&
               books_.routes.Available(route, key.source, key.destination)) {
      add(route, absl::StrCat("all ", kPreparedSlots, " slots of the link are taken"));
    } else {
      add(route, books_.routes.WhyNot(route, key.source, key.destination));
    }
  }
  if (insisted != Route::kUnspecified && !insisted_listed) {
    add(insisted, books_.routes.WhyNot(insisted, key.source, key.destination));
  }
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable, text);
}

bool DestinationRules::FireByGo(Posted& receive) {
  home_.Check();
  Offer& offer = receive.offered->offer;
  if (!receive.state.Is<HalfState::AwaitsFiring>() || !receive.firings.wanted || !offer.ready)
    return false;
  offer.ready = false;  // of this firing
  LaunchPair(receive, receive.route);
  return true;
}

void DestinationRules::DropRest(Posted& receive, absl::Status why) {
  home_.Check();
  if (receive.load == nullptr || !books_.cliques.Drop(*receive.load, std::move(why))) return;
  GoOn(receive);
}

bool DestinationRules::OnReady(PeerId peer, const Ready& ready) {
  home_.Check();
  Offered* offered = books_.offers.Find(peer, ready.transfer);
  if (offered == nullptr || offered->offer.ready) return false;
  Posted* receive = books_.halves.Find(offered->receive);
  if (offered->offer.prepared && (receive == nullptr || !FiredByGo(receive->route))) {
    return false;
  }
  offered->offer.ready = true;
  if (receive != nullptr) Start(*receive);
  return true;
}

bool DestinationRules::OnWithdraw(PeerId peer, Withdraw withdraw) {
  home_.Check();
  Offered* offered = books_.offers.Find(peer, withdraw.transfer);
  if (offered == nullptr) return false;
  absl::Status why = Failure(std::move(withdraw.status));
  Posted* receive = books_.halves.Find(offered->receive);
  if (receive == nullptr) {
    if (offered->count() > 1) return false;
    Done done{withdraw.transfer, why, Route::kUnspecified, std::nullopt};
    if (HasReason(why, Reason::kWaitingForPeer)) {
      done.near = books_.long_waits.Look(Side::kReceive, offered->offer.key);
    }
    const MatchKey key = offered->offer.key;
    books_.tables.Erase(*offered);
    if (HasReason(why, Reason::kWaitingForPeer)) books_.long_waits.Remember(Side::kSend, key);
    books_.tombstones.Leave(context_.now, peer, Side::kSend, key, why);
    context_.Send(peer, std::move(done));
    return true;
  }
  absl::Status ours = Annotate(why, context_.PlaceOf(Side::kSend, receive->spec.key));
  if (!receive->state.launched()) {
    ends_.EndPair(*receive, std::move(ours), std::move(why));
  } else if (receive->spec.prepared) {
    launches_.Disarm(*receive, std::move(ours), std::move(why));
  } else if (ByGroups(receive->route) && HasReason(why, Reason::kExecuting)) {
    DropRest(*receive, std::move(ours));
  } else if (receive->at_lane && receive->at_lane->role == LaunchRole::kReceive &&
             HasReason(why, Reason::kExecuting)) {
    launches_.Abort(*receive, std::move(ours));
  } else {
    WishedTooLate(*receive, std::move(ours));
  }
  return true;
}

bool DestinationRules::OnSendFailed(PeerId peer, SendFailed failed) {
  home_.Check();
  Offered* offered = books_.offers.Find(peer, failed.transfer);
  if (offered == nullptr) return false;
  Posted* receive = books_.halves.Find(offered->receive);
  if (receive == nullptr || !receive->at_lane ||
      (receive->at_lane->role != LaunchRole::kReceive && !receive->spec.prepared) ||
      receive->attempt != failed.attempt) {
    return false;
  }
  const absl::Status theirs = Failure(std::move(failed.status));
  absl::Status ours = Annotate(theirs, context_.PlaceOf(Side::kSend, receive->spec.key));
  if (const Bundle* bundle = books_.cliques.bundles().Find(receive->bundle);
      bundle != nullptr && bundle->begun) {
    launches_.Disarm(*receive, std::move(ours), theirs);  // no other route goes on from there
  } else {
    launches_.Abort(*receive, std::move(ours));
  }
  return true;
}

void DestinationRules::WishedTooLate(Posted& receive, absl::Status why) {
  absl::Status& wish = *receive.state.late_wish();
  if (wish.ok()) wish = std::move(why);
}

void DestinationRules::GoOn(Posted& receive) {
  home_.Check();
  if (receive.under_way() || ends_.EndIfLeaving(receive)) return;
  const Load& load = *receive.load;
  if (load.moved == load.bytes && (load.why.ok() || load.bytes > 0)) {
    OnReceiveDone(receive, absl::OkStatus());
  } else if (!load.why.ok()) {
    OnReceiveDone(receive, absl::Status(load.why));
  }
}

}  // namespace ferry
