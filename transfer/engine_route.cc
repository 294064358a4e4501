// SPDX-License-Identifier: Apache-2.0
// Which route a pair takes next, and the words for a pair that has none: what transfer/route_choice
// says, for a half of ours.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

// A group of so few bytes that took so much longer than a transfer does had to wait for SMs.
constexpr uint64_t kTellingBytes = RouteEstimate::kLatencyBytes;
constexpr absl::Duration kLateGroup = absl::Milliseconds(1);

}  // namespace

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
  if (choice.missed > absl::ZeroDuration()) MissCommunicator(CliqueOf(key), choice.missed);
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

void TransferEngine::Impl::ObserveSms(const GroupRecord& group) {
  if (group.bytes > kTellingBytes) return;
  const std::optional<absl::Duration> usual = routes.UsualGroup(group.peer, group.clique);
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
