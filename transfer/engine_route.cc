// SPDX-License-Identifier: Apache-2.0
// By which route a pair travels: what is available between its devices, and what of that is taken,
// by order and by estimate (docs/decisions/2026-11-22-routes-by-estimate.md and
// 2026-11-25-priors-and-busy-sms.md). The destination decides.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

// What a route must be better than another by, to be taken against the configured order: if both
// were measured, and if what is known of one is a prior.
constexpr double kClearWin = 0.8;
constexpr double kClearPriorWin = 0.5;
// A route that was given up is tried again so often, by a transfer that is not too large.
constexpr absl::Duration kProbeEvery = absl::Seconds(10);
constexpr uint64_t kProbeBytes = uint64_t{64} << 20;
// Until a route is measured, one transfer at a time takes it by its prior, and none that is larger.
constexpr uint64_t kUnmeasuredBytes = uint64_t{1} << 30;
// A group of so few bytes that took so much longer than a transfer does had to wait for SMs.
constexpr uint64_t kTellingBytes = RouteEstimate::kLatencyBytes;
constexpr absl::Duration kLateGroup = absl::Milliseconds(1);

}  // namespace

const TransferEngine::Impl::Ends& TransferEngine::Impl::EndsOf(GlobalDeviceId source,
                                                               GlobalDeviceId destination) const {
  if (last_ends && last_ends->source == source && last_ends->destination == destination) {
    return *last_ends;
  }
  const PeerId from = OwnerOf(source);
  return last_ends.emplace(Ends{source, destination,
                                from == devices.self ? OwnerOf(destination) : from, IsGpu(source),
                                IsGpu(destination)});
}

bool TransferEngine::Impl::IsGpu(GlobalDeviceId device) const {
  const PeerId owner = OwnerOf(device);
  const auto& gpus = owner == devices.self ? devices.gpus : peers[owner.value()].gpus;
  return !gpus.empty() && gpus.contains(device);
}

absl::string_view TransferEngine::Impl::KindsObject(Route route, const Ends& ends) const {
  const RouteTable& routes = peers[ends.peer.value()].routes;
  const size_t index = static_cast<size_t>(route);
  if (index < routes.size() && !routes[index].except.empty()) {
    const auto why = routes[index].except.find(CliqueOf(ends.source, ends.destination));
    if (why != routes[index].except.end()) return why->second;
  }
  if (route == Route::kMapped && ends.source_gpu && !ends.destination_gpu) {
    return "the destination copies, and a host device has no copy engine to read another daemon's "
           "GPU with";
  }
  return "";
}

bool TransferEngine::Impl::MakesGroups(PeerId peer, const Clique& clique) const {
  return peers[peer.value()].groups &&
         KindsObject(Route::kNccl, EndsOf(clique.low, clique.high)).empty();
}

const RouteEstimate& TransferEngine::Impl::EstimateOf(Route route, GlobalDeviceId source,
                                                      GlobalDeviceId destination) const {
  const Ends& ends = EndsOf(source, destination);
  const bool gpu = ends.source_gpu || ends.destination_gpu;
  return peers[ends.peer.value()].estimates[gpu][static_cast<size_t>(route)];
}

RouteEstimate& TransferEngine::Impl::EstimateOf(const Posted& receive) {
  const MatchKey& key = receive.spec.key;
  const Ends& ends = EndsOf(key.source, key.destination);
  if (ends.peer == receive.peer) return EstimateOf(receive.route, key);
  // Its peer has left, and another one has the device now.
  Peer& peer = peers[receive.peer.value()];
  const bool gpu = ends.destination_gpu || peer.gpus.contains(key.source);
  return peer.estimates[gpu][static_cast<size_t>(receive.route)];
}

bool TransferEngine::Impl::Available(Route route, GlobalDeviceId source,
                                     GlobalDeviceId destination) const {
  const Ends& ends = EndsOf(source, destination);
  if (ends.peer == devices.self) return route == Route::kLocal;
  if (route == Route::kLocal) return false;
  const Peer& state = peers[ends.peer.value()];
  const size_t index = static_cast<size_t>(route);
  return state.up && index < state.routes.size() && state.routes[index].available &&
         KindsObject(route, ends).empty();
}

std::string TransferEngine::Impl::WhyNot(Route route, GlobalDeviceId source,
                                         GlobalDeviceId destination) const {
  if (!InOrder(route)) {
    return "not in the configured order of routes";
  }
  const PeerId from = OwnerOf(source);
  const PeerId to = OwnerOf(destination);
  if (from == to) return absl::StrCat("both devices belong to ", NodeName(from));
  const PeerId other = from == devices.self ? to : from;
  if (route == Route::kLocal) {
    return absl::StrCat("device ", (from == devices.self ? destination : source).value(),
                        " belongs to ", NodeName(other));
  }
  const Peer& peer = peers[other.value()];
  if (!peer.up) {
    return absl::StrCat("no link to ", NodeName(other), ": ",
                        absl::string_view(peer.last_error.message()));
  }
  const size_t index = static_cast<size_t>(route);
  if (index >= peer.routes.size()) return absl::StrCat(NodeName(other), " does not know it");
  const absl::string_view kinds = KindsObject(route, EndsOf(source, destination));
  if (!kinds.empty()) return std::string(kinds);
  return peer.routes[index].why;
}

bool TransferEngine::Impl::IsUnmapped(const MatchKey& key, const Layout& source) const {
  const Peer& peer = peers[EndsOf(key.source, key.destination).peer.value()];
  return peer.unmapped.Contains(clock, CliqueOf(key), source);
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
  const PickedRoute choice =
      PickRoute(clock, key.source, key.destination, source.bytes, excluded, receive.spec.prepared);
  if (choice.missed > absl::ZeroDuration()) MissCommunicator(CliqueOf(key), choice.missed);
  return choice.route;
}

PickedRoute TransferEngine::Impl::PickRoute(absl::Time now, GlobalDeviceId source,
                                            GlobalDeviceId destination, uint64_t bytes,
                                            uint8_t excluded, bool lasting) const {
  Route first = Route::kUnspecified;
  PickedRoute best;
  std::optional<RouteTime> best_time;
  bool compared = false;
  for (Route route : options.order) {
    if ((excluded & RouteBit(route)) != 0 || !Available(route, source, destination)) continue;
    if (first == Route::kUnspecified) {
      first = best.route = route;
      if (!options.by_estimate) return best;
      continue;
    }
    // Only now is the first one's time of interest: often it is the only one.
    if (!std::exchange(compared, true)) {
      best_time = TimeOf(now, first, source, destination, bytes, lasting);
    }
    const std::optional<RouteTime> time = TimeOf(now, route, source, destination, bytes, lasting);
    if (!time || !best_time) continue;
    const bool measured = time->measured && best_time->measured;
    // NCCL goes by the same wires, so that a prior does not tell.
    if (!measured && best.route == Route::kMapped) continue;
    if (time->time >= best_time->time * (measured ? kClearWin : kClearPriorWin)) continue;
    if (!time->measured && !lasting &&
        (bytes > kUnmeasuredBytes || !EstimateOf(route, source, destination).idle())) {
      continue;
    }
    // Nobody waits until one is open who can travel otherwise; what is prepared opens it anyway.
    if (route == Route::kNccl && !lasting && !HasCommunicator(CliqueOf(source, destination))) {
      best.missed = best_time->time - time->time;
      continue;
    }
    best.route = route;
    best_time = time;
  }
  if (best.route == first) return best;
  // One transfer now and then sees whether the order is right again.
  const RouteEstimate& given_up = EstimateOf(first, source, destination);
  const bool probe = !lasting && bytes <= kProbeBytes && given_up.idle() &&
                     now >= given_up.last_launch() + kProbeEvery;
  if (probe) best.route = first;
  return best;
}

std::optional<RouteTime> TransferEngine::Impl::TimeOf(absl::Time now, Route route,
                                                      GlobalDeviceId source,
                                                      GlobalDeviceId destination, uint64_t bytes,
                                                      bool lasting) const {
  std::optional<RouteTime> time =
      EstimateOf(route, source, destination).TimeFor(bytes, PriorOf(route, source, destination));
  // What is prepared stays on its route when the SMs are idle again.
  if (time && route == Route::kNccl && !lasting && SmsBusy(now, CliqueOf(source, destination))) {
    time->time += SmLoad::kSlice;
  }
  return time;
}

const RoutePrior* TransferEngine::Impl::PriorOf(Route route, GlobalDeviceId source,
                                                GlobalDeviceId destination) const {
  const Ends& ends = EndsOf(source, destination);
  const RouteTable& routes = peers[ends.peer.value()].routes;
  const size_t index = static_cast<size_t>(route);
  if (index >= routes.size() || !ends.source_gpu || !ends.destination_gpu) return nullptr;
  return routes[index].prior ? &*routes[index].prior : nullptr;
}

bool TransferEngine::Impl::SmsBusy(absl::Time now, const Clique& clique) const {
  const auto rank = ranks.find(clique);
  if (rank != ranks.end() && rank->second.sms.busy(now)) return true;
  for (const GlobalDeviceId device : {clique.low, clique.high}) {
    const auto until = sms_busy_until.find(device);
    if (until != sms_busy_until.end() && now < until->second) return true;
  }
  return false;
}

void TransferEngine::Impl::ObserveSms(const GroupRecord& group) {
  if (group.bytes > kTellingBytes) return;
  const PeerId peer = group.peer;
  const size_t nccl = static_cast<size_t>(Route::kNccl);
  std::optional<absl::Duration> usual = peers[peer.value()].estimates[1][nccl].latency();
  const RoutePrior* const prior = PriorOf(Route::kNccl, group.clique.low, group.clique.high);
  if (!usual && prior != nullptr) usual = prior->latency;
  if (!usual) return;  // wherever the peer is
  ranks.at(group.clique).sms.OnKernelOver(clock - group.began > *usual + kLateGroup, clock);
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
      add(route, peers[receive.peer.value()].unmapped.Find(CliqueOf(key))->why);
    } else if (route == Route::kNccl && receive.spec.prepared && source.slot == 0 &&
               Available(route, key.source, key.destination)) {
      add(route, absl::StrCat("all ", kPreparedSlots, " slots of the link are taken"));
    } else {
      add(route, WhyNot(route, key.source, key.destination));
    }
  }
  if (insisted != Route::kUnspecified && !insisted_listed) {
    add(insisted, WhyNot(insisted, key.source, key.destination));
  }
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable, text);
}

}  // namespace ferry
