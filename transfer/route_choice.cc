// SPDX-License-Identifier: Apache-2.0
#include "transfer/route_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "device/sm_load.h"

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

bool IsOpen(const CommRecord* comm) {
  return comm != nullptr && comm->ordered && comm->open && comm->failing.ok();
}

}  // namespace

RouteChoice::RouteChoice(const DeviceMap& devices, const DeviceOwners& owners,
                         std::vector<Route> order, bool by_estimate, CommOf comm_of)
    : devices_(devices),
      owners_(owners),
      order_(std::move(order)),
      by_estimate_(by_estimate),
      comm_of_(std::move(comm_of)) {}

void RouteChoice::AddPeer() {
  home_.Check();
  peers_.emplace_back();
}

void RouteChoice::OnPeerUp(PeerId id, RouteTable routes, absl::flat_hash_set<GlobalDeviceId> gpus) {
  home_.Check();
  OfPeer& peer = peers_[id.value()];
  peer.up = true;
  for (auto& row : peer.estimates) {
    for (RouteEstimate& estimate : row) estimate.Forget();
  }
  peer.gpus = std::move(gpus);
  last_ends_.reset();
  OnPeerRoutes(id, std::move(routes));
}

void RouteChoice::OnPeerRoutes(PeerId id, RouteTable routes) {
  home_.Check();
  OfPeer& peer = peers_[id.value()];
  peer.routes = std::move(routes);
  peer.unmapped.Clear();
  const size_t nccl = static_cast<size_t>(Route::kNccl);
  peer.groups = peer.groups ||
                (InOrder(Route::kNccl) && nccl < peer.routes.size() && peer.routes[nccl].available);
}

void RouteChoice::OnPeerLost(PeerId id) {
  home_.Check();
  OfPeer& peer = peers_[id.value()];
  peer.up = false;
  peer.groups = false;
  peer.routes.clear();
  peer.unmapped.Clear();
}

void RouteChoice::SetLastError(PeerId peer, absl::Status why) {
  home_.Check();
  peers_[peer.value()].last_error = std::move(why);
}

RouteEstimate& RouteChoice::EstimateOf(Route route, const MatchKey& key) {
  home_.Check();
  return const_cast<RouteEstimate&>(Measured(route, key.source, key.destination));
}

bool RouteChoice::InOrder(Route route) const {
  home_.Check();
  return std::find(order_.begin(), order_.end(), route) != order_.end();
}

const RouteChoice::Ends& RouteChoice::EndsOf(GlobalDeviceId source,
                                             GlobalDeviceId destination) const {
  if (last_ends_ && last_ends_->source == source && last_ends_->destination == destination) {
    return *last_ends_;
  }
  const PeerId from = owners_[source];
  return last_ends_.emplace(Ends{source, destination,
                                 from == devices_.self ? owners_[destination] : from, IsGpu(source),
                                 IsGpu(destination)});
}

bool RouteChoice::IsGpu(GlobalDeviceId device) const {
  const PeerId owner = owners_[device];
  const auto& gpus = owner == devices_.self ? devices_.gpus : peers_[owner.value()].gpus;
  return !gpus.empty() && gpus.contains(device);
}

absl::string_view RouteChoice::KindsObject(Route route, const Ends& ends) const {
  const RouteTable& routes = peers_[ends.peer.value()].routes;
  const size_t index = static_cast<size_t>(route);
  if (index < routes.size() && !routes[index].except.empty()) {
    const auto why = routes[index].except.find(CliqueOf(ends.source, ends.destination));
    if (why != routes[index].except.end()) return why->second;
  }
  return ends.source_gpu && !ends.destination_gpu ? TraitsOf(route).no_gpu_to_host : "";
}

bool RouteChoice::MakesGroups(PeerId peer, const Clique& clique) const {
  home_.Check();
  return peers_[peer.value()].groups &&
         KindsObject(Route::kNccl, EndsOf(clique.low, clique.high)).empty();
}

const RouteEstimate& RouteChoice::Measured(Route route, GlobalDeviceId source,
                                           GlobalDeviceId destination) const {
  const Ends& ends = EndsOf(source, destination);
  const bool gpu = ends.source_gpu || ends.destination_gpu;
  return peers_[ends.peer.value()].estimates[gpu][static_cast<size_t>(route)];
}

bool RouteChoice::Available(Route route, GlobalDeviceId source, GlobalDeviceId destination) const {
  home_.Check();
  const Ends& ends = EndsOf(source, destination);
  if (ends.peer == devices_.self) return route == Route::kLocal;
  if (route == Route::kLocal) return false;
  const OfPeer& state = peers_[ends.peer.value()];
  const size_t index = static_cast<size_t>(route);
  return state.up && index < state.routes.size() && state.routes[index].available &&
         KindsObject(route, ends).empty();
}

std::string RouteChoice::WhyNot(Route route, GlobalDeviceId source,
                                GlobalDeviceId destination) const {
  home_.Check();
  if (!InOrder(route)) {
    return "not in the configured order of routes";
  }
  const PeerId from = owners_[source];
  const PeerId to = owners_[destination];
  if (from == to) return absl::StrCat("both devices belong to ", devices_.node_names[from.value()]);
  const PeerId other = from == devices_.self ? to : from;
  if (route == Route::kLocal) {
    return absl::StrCat("device ", (from == devices_.self ? destination : source).value(),
                        " belongs to ", devices_.node_names[other.value()]);
  }
  const OfPeer& peer = peers_[other.value()];
  if (!peer.up) {
    return absl::StrCat("no link to ", devices_.node_names[other.value()], ": ",
                        absl::string_view(peer.last_error.message()));
  }
  const size_t index = static_cast<size_t>(route);
  if (index >= peer.routes.size())
    return absl::StrCat(devices_.node_names[other.value()], " does not know it");
  const absl::string_view kinds = KindsObject(route, EndsOf(source, destination));
  if (!kinds.empty()) return std::string(kinds);
  return peer.routes[index].why;
}

RouteChoice::Picked RouteChoice::Pick(absl::Time now, GlobalDeviceId source,
                                      GlobalDeviceId destination, uint64_t bytes, uint8_t excluded,
                                      bool lasting) const {
  home_.Check();
  Route first = Route::kUnspecified;
  Picked best;
  std::optional<RouteTime> best_time;
  bool compared = false;
  for (Route route : order_) {
    if ((excluded & RouteBit(route)) != 0 || !Available(route, source, destination)) continue;
    if (first == Route::kUnspecified) {
      first = best.route = route;
      if (!by_estimate_) return best;
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
        (bytes > kUnmeasuredBytes || !Measured(route, source, destination).idle())) {
      continue;
    }
    // Nobody waits until one is open who can travel otherwise; what is prepared opens it anyway.
    if (route == Route::kNccl && !lasting && !IsOpen(comm_of_(CliqueOf(source, destination)))) {
      best.missed = best_time->time - time->time;
      continue;
    }
    best.route = route;
    best_time = time;
  }
  if (best.route == first) return best;
  // One transfer now and then sees whether the order is right again.
  const RouteEstimate& given_up = Measured(first, source, destination);
  const bool probe = !lasting && bytes <= kProbeBytes && given_up.idle() &&
                     now >= given_up.last_launch() + kProbeEvery;
  if (probe) best.route = first;
  return best;
}

std::optional<RouteTime> RouteChoice::TimeOf(absl::Time now, Route route, GlobalDeviceId source,
                                             GlobalDeviceId destination, uint64_t bytes,
                                             bool lasting) const {
  std::optional<RouteTime> time =
      Measured(route, source, destination).TimeFor(bytes, PriorOf(route, source, destination));
  // What is prepared stays on its route when the SMs are idle again.
  if (time && route == Route::kNccl && !lasting && SmsBusy(now, CliqueOf(source, destination))) {
    time->time += SmLoad::kSlice;
  }
  return time;
}

const RoutePrior* RouteChoice::PriorOf(Route route, GlobalDeviceId source,
                                       GlobalDeviceId destination) const {
  const Ends& ends = EndsOf(source, destination);
  const RouteTable& routes = peers_[ends.peer.value()].routes;
  const size_t index = static_cast<size_t>(route);
  if (index >= routes.size() || !ends.source_gpu || !ends.destination_gpu) return nullptr;
  return routes[index].prior ? &*routes[index].prior : nullptr;
}

bool RouteChoice::SmsBusy(absl::Time now, const Clique& clique) const {
  home_.Check();
  const CommRecord* const comm = comm_of_(clique);
  if (comm != nullptr && comm->sms.busy(now)) return true;
  for (const GlobalDeviceId device : {clique.low, clique.high}) {
    const auto until = sms_busy_until_.find(device);
    if (until != sms_busy_until_.end() && now < until->second) return true;
  }
  return false;
}

std::optional<absl::Duration> RouteChoice::UsualGroup(PeerId peer, const Clique& clique) const {
  home_.Check();
  const RouteEstimate& measured =
      peers_[peer.value()].estimates[1][static_cast<size_t>(Route::kNccl)];
  if (const std::optional<absl::Duration> latency = measured.latency()) return latency;
  const RoutePrior* const prior = PriorOf(Route::kNccl, clique.low, clique.high);
  if (prior == nullptr) return std::nullopt;
  return prior->latency;
}

// --- Explanations.

void RouteChoice::ExplainTime(absl::Time now, GlobalDeviceId source, GlobalDeviceId destination,
                              uint64_t bytes, RouteOption& option) const {
  const Route route = option.route;
  const RouteEstimate& estimate = Measured(route, source, destination);
  if (const auto time = TimeOf(now, route, source, destination, bytes, false)) {
    option.time = time->time;
    option.measured = time->measured;
  }
  option.latency = estimate.latency();
  option.bytes_per_second = estimate.bytes_per_second();
  if (const RoutePrior* const prior = PriorOf(route, source, destination)) {
    option.latency = option.latency.value_or(prior->latency);
    option.bytes_per_second = option.bytes_per_second.value_or(prior->bytes_per_second);
  }
  option.sms_busy =
      option.available && route == Route::kNccl && SmsBusy(now, CliqueOf(source, destination));
}

std::string RouteChoice::ExplainChoice(const RouteOption& option, bool first, bool decides,
                                       const Picked& picked, GlobalDeviceId source,
                                       GlobalDeviceId destination) const {
  if (!decides) {
    return absl::StrCat(first ? "first in the order" : "later in the order", "; what was measured ",
                        devices_.node_names[OtherEnd(source, destination).value()],
                        " knows, which decides");
  }
  if (option.chosen) {
    return first             ? "first in the order"
           : option.measured ? "measured to be clearly faster"
                             : "not measured, expected to be clearly faster";
  }
  if (first) {
    return absl::StrCat(option.measured ? "measured" : "expected", " to be clearly slower");
  }
  if (!by_estimate_) return "later in the order";
  if (!option.time.has_value()) return "later in the order, and not measured enough";
  if (option.route == Route::kNccl && picked.missed > absl::ZeroDuration()) {
    const CommRecord* const comm = comm_of_(CliqueOf(source, destination));
    const CommRecord known = comm != nullptr ? *comm : CommRecord();
    return absl::StrCat(
        "clearly faster, but its communicator is not open; transfers have missed it for ",
        DurationText(known.missed), ", at ", DurationText(known.worth_opening), " it is opened");
  }
  return absl::StrCat("later in the order, and not ", option.measured ? "measured" : "expected",
                      " to be clearly faster");
}

std::vector<RouteOption> RouteChoice::Explain(absl::Time now, GlobalDeviceId source,
                                              GlobalDeviceId destination, uint64_t bytes) const {
  home_.Check();
  const bool decides = owners_[destination] == devices_.self;
  const PeerId peer = owners_[decides ? source : destination];
  const Picked picked = Pick(now, source, destination, bytes, 0, false);
  std::vector<RouteOption> shown;
  bool any = false;  // available, so far
  for (const Route route : order_) {
    RouteOption& option = shown.emplace_back();
    option.route = route;
    option.available = Available(route, source, destination);
    option.chosen = option.available && route == picked.route;
    if (decides) ExplainTime(now, source, destination, bytes, option);
    option.reason = !option.available
                        ? WhyNot(route, source, destination)
                        : ExplainChoice(option, !any, decides, picked, source, destination);
    if (option.sms_busy) {
      absl::StrAppend(&option.reason, "; the SMs are busy, which costs ",
                      DurationText(SmLoad::kSlice));
    }
    if (route == Route::kMapped && option.available && decides) {
      const auto* const unmapped = UnmappedOf(peer).Find(CliqueOf(source, destination));
      if (unmapped != nullptr) {
        absl::StrAppend(&option.reason, "; not for ", unmapped->arenas.size(),
                        " arenas of the source: ", unmapped->why);
      }
    }
    any = any || option.available;
  }
  return shown;
}

}  // namespace ferry
