// SPDX-License-Identifier: Apache-2.0
// Code that depends on a property of routes reads kRouteTable and compares no route by name; only
// what one route alone has is asked by its name. What moves the bytes is a Transport
// (transfer/transport.h) of each lane; whether two daemons have the route between them is found out
// by its LinkRoute, of `mapped` by PeerLink. How to add one: docs/how-to-add.md.
//
// Constant data. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace ferry {

// Numbered as in ferry.v1.Route.
enum class Route : uint8_t { kUnspecified = 0, kLocal, kMapped, kUcx, kNccl, kTcp };
inline constexpr int kRoutes = 6;

// Who sees that both ends of a prepared transfer want its next firing.
enum class FiredBy : uint8_t {
  kNobody,    // Route::kUnspecified
  kBatches,   // one lane, by the words of both batches
  kSlot,      // the lanes of both ends, by a slot of the source's link page
  kMessages,  // the lanes of both ends, by messages of the route
  kGo,        // control of both ends, by a Go for each firing
  kGroups,    // the cliques of both ends; the slot names the bundle that a group carries
};

struct RouteTraits {
  Route route = Route::kUnspecified;
  absl::string_view name;
  // Each end runs a half of the launch, on which the two agree by Go.
  bool two_sided = false;
  FiredBy fired_by = FiredBy::kNobody;
  // The destination copies from a mapping of the source's arena, which may be refused: then the
  // arena is remembered, and for a while not tried again (UnmappedArenas).
  bool maps_source = false;
  // Why a host device cannot receive from a GPU by this route; "" if it can. (Other pairs of
  // devices that cannot take a route between two daemons: RouteState::except.)
  absl::string_view no_gpu_to_host = "";
};

// By Route. What each one needs of two daemons:
//   local: the two devices are of one daemon.
//   mapped: a common kernel, and users who trust each other: the destination maps the source's
//   arenas.
//   ucx: UCX of one version at both ends, and an address that can be reached.
//   nccl: NCCL of one version at both ends, and a GPU of its own for each rank.
//   tcp: connections between the two daemons, besides that of their link.
inline constexpr std::array<RouteTraits, kRoutes> kRouteTable = {{
    {Route::kUnspecified, "any"},
    {Route::kLocal, "local", false, FiredBy::kBatches},
    {Route::kMapped, "mapped", false, FiredBy::kSlot, true,
     "the destination copies, and a host device has no copy engine to read another daemon's GPU "
     "with"},
    {Route::kUcx, "ucx", true, FiredBy::kGo},
    {Route::kNccl, "nccl", false, FiredBy::kGroups},
    {Route::kTcp, "tcp", true, FiredBy::kMessages},
}};

constexpr const RouteTraits& TraitsOf(Route route) {
  return kRouteTable[static_cast<size_t>(route)];
}

namespace route_table_check {
constexpr bool IsByRoute() {
  for (size_t i = 0; i < kRouteTable.size(); ++i) {
    if (static_cast<size_t>(kRouteTable[i].route) != i) return false;
  }
  return true;
}
static_assert(IsByRoute());
}  // namespace route_table_check

inline bool TwoSided(Route route) { return TraitsOf(route).two_sided; }
// True if each firing of a prepared transfer is agreed by Go. On the other routes it is armed.
inline bool FiredByGo(Route route) { return TraitsOf(route).fired_by == FiredBy::kGo; }
inline bool MapsSource(Route route) { return TraitsOf(route).maps_source; }
// True if groups of cliques carry the bytes. Prepared transfers are then in bundles.
inline bool ByGroups(Route route) { return TraitsOf(route).fired_by == FiredBy::kGroups; }
// True if a Go that names the route arms a prepared send. `has_slot`: the send has a slot of our
// link page.
inline bool ArmedByGo(Route route, bool has_slot) {
  switch (TraitsOf(route).fired_by) {
    case FiredBy::kMessages:
      return true;
    case FiredBy::kSlot:
    case FiredBy::kGroups:
      return has_slot;
    case FiredBy::kNobody:
    case FiredBy::kBatches:
    case FiredBy::kGo:
      break;
  }
  return false;
}

}  // namespace ferry
