// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/launch_rules.h"

#include <utility>

#include "base/flight_recorder.h"
#include "transfer/clique/bundle.h"

namespace ferry {

void LaunchRules::Abort(Posted& half, absl::Status why) {
  home_.Check();
  // Groups end with their attempt, not for one transfer.
  if (half.at_lane && !std::exchange(half.at_lane->aborted, true)) OrderAbort(half, why);
  if (half.why.ok()) half.why = std::move(why);
}

void LaunchRules::OrderAbort(Posted& half, absl::Status why) {
  if (ByGroups(half.route) && books_.cliques.bundles().LeavesLater(half.bundle, half.id, why)) {
    return;
  }
  context_.out.aborts.emplace_back(half.id, std::move(why));
}

void LaunchRules::AwaitFiring(Posted& half) {
  home_.Check();
  books_.tables.StopTimer(half);
  half.state.AwaitFiring();
  if (half.firings.wanted || half.watched || half.state.withdrawn()) return;
  books_.tables.WatchFiring(half);
}

void LaunchRules::CountFiring(Posted& half) {
  home_.Check();
  context_.out.fired.push_back({half.id, half.spec.over_timeline, ++half.firings.over});
}

void LaunchRules::FiringOver(Posted& half) {
  home_.Check();
  CountFiring(half);
  half.firings.wanted = false;
  if (half.spec.side == Side::kReceive) {
    context_.Send(half.peer, Done{half.partner, absl::OkStatus(), half.route});
  }
  AwaitFiring(half);
}

Load LaunchRules::MakeLoad(const Posted& half) {
  const MatchKey& key = half.spec.key;
  Load load;
  load.half = half.id;
  load.clique = CliqueOf(key);
  load.receives = half.spec.side == Side::kReceive;
  load.name = {key.destination == load.clique.low, load.receives ? half.partner : half.id};
  load.peer = half.peer;
  load.bytes = half.spec.bytes;
  load.layout = &half.spec.layout;
  return load;
}

PairName LaunchRules::BundleName(const Posted& half, TransferId batch, uint32_t slot) {
  const MatchKey& key = half.spec.key;
  return {key.destination == CliqueOf(key).low, batch, slot};
}

bool LaunchRules::MayJoinBundle(const Posted& send, TransferId batch) const {
  home_.Check();
  return send.bundle == 0 && books_.cliques.bundles().MayJoin(send.peer, CliqueOf(send.spec.key),
                                                              BundleName(send, batch, send.slot));
}

Bundle& LaunchRules::JoinBundle(Posted& half, TransferId batch, uint32_t slot) {
  home_.Check();
  Load part = MakeLoad(half);
  part.name = BundleName(half, batch, slot);
  part.layout = nullptr;
  half.bundle = books_.cliques.bundles().Join(part, half.batch, half.batch_size);
  return *books_.cliques.bundles().Find(half.bundle);
}

void LaunchRules::Disarm(Posted& receive, absl::Status ours, absl::Status theirs) {
  home_.Check();
  absl::Status& for_source = *receive.state.for_source();
  if (!for_source.ok()) return;
  FlightRecorder::Get().Record("disarm", receive.id, receive.peer.value(),
                               static_cast<uint64_t>(ours.code()));
  for_source = std::move(theirs);
  receive.why = ours;  // also if it was being aborted for another route
  Abort(receive, std::move(ours));
}

void LaunchRules::BeginEstimate(Posted& receive, Route route) {
  home_.Check();
  receive.estimate = &books_.routes.EstimateOf(route, receive.spec.key);
  receive.estimate->OnLaunch(context_.now);
}

void LaunchRules::EndEstimate(Posted& receive, bool moved) {
  home_.Check();
  RouteEstimate* const estimate = std::exchange(receive.estimate, nullptr);
  if (estimate == nullptr) return;
  // A latency counts that SMs which are idle gave: RouteChoice adds what busy ones take.
  const bool late = receive.spec.bytes <= RouteEstimate::kLatencyBytes &&
                    books_.routes.SmsBusy(context_.now, CliqueOf(receive.spec.key));
  estimate->OnDone(context_.now, receive.spec.bytes, moved && !late);
}

void LaunchRules::StopLaunch(Posted& send) {
  home_.Check();
  if (!send.at_lane || std::exchange(send.at_lane->aborted, true)) return;
  OrderAbort(send, absl::AbortedError("the destination tries another launch"));
}

}  // namespace ferry
