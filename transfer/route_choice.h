// SPDX-License-Identifier: Apache-2.0
// RouteChoice lists the routes available between two devices and picks one, by order or estimate
// (docs/decisions/2026-11-22-routes-by-estimate.md and 2026-11-25-priors-and-busy-sms.md).
// The destination's daemon decides, so this daemon chooses for what its devices receive; what it
// sends it can only explain.
//
// Pure: time is an argument. Home: control. Owner: TransferEngine, which tells it of links,
// launches and busy SMs, and asks it; it knows nothing of transfers.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/comm_record.h"
#include "transfer/device_owners.h"
#include "transfer/route_estimate.h"
#include "transfer/route_table.h"
#include "transfer/unmapped_arenas.h"

namespace ferry {

// A set of routes has a bit for each.
inline uint8_t RouteBit(Route route) { return static_cast<uint8_t>(1 << static_cast<int>(route)); }
// The bits of the routes of which `holds` is true.
inline uint8_t RouteBits(bool (*holds)(Route)) {
  uint8_t bits = 0;
  for (const RouteTraits& traits : kRouteTable) {
    if (holds(traits.route)) bits |= RouteBit(traits.route);
  }
  return bits;
}

// One route as `ferryctl route` shows it.
struct RouteOption {
  Route route = Route::kUnspecified;
  bool available = false;
  bool chosen = false;  // now, for transfers of so many bytes that name no route
  std::string reason;   // why it is not available, or is chosen or not
  // The figures: as measured of transfers from the source, or, where there were none, the route's
  // prior. There are figures only if the destination is ours.
  std::optional<absl::Duration> time;  // for the bytes that Explain was asked for
  bool measured = false;               // `time` is by what was measured
  bool sms_busy = false;  // the route needs SMs, and these are busy: `time` includes the wait
  std::optional<absl::Duration> latency;
  std::optional<double> bytes_per_second;
};

class RouteChoice {
 public:
  // What the engine knows of a clique's communicator; null if the clique has had no pair.
  using CommOf = std::function<const CommRecord*(const Clique&)>;

  // `devices` and `owners` stay their owner's, and may change (OnDevicesChanged). `order`: the
  // routes that are configured, the first one first.
  RouteChoice(const DeviceMap& devices, const DeviceOwners& owners, std::vector<Route> order,
              bool by_estimate, CommOf comm_of);

  // False: the first route of the order that is available is taken.
  void SetByEstimate(bool by_estimate) {
    home_.Check();
    by_estimate_ = by_estimate;
  }

  // --- What it is told of peers, by PeerId.

  void AddPeer();  // the next PeerId
  void OnDevicesChanged() {
    home_.Check();
    last_ends_.reset();
  }
  // The link is up. What was measured before was of another life of the peer, or of another
  // network.
  void OnPeerUp(PeerId peer, RouteTable routes, absl::flat_hash_set<GlobalDeviceId> gpus);
  void OnPeerRoutes(PeerId peer, RouteTable routes);
  void OnPeerLost(PeerId peer);
  // Why there is no link, or was none last.
  void SetLastError(PeerId peer, absl::Status why);
  // Kernels of ours found the SMs of our GPU `device` busy: until then nothing that needs SMs is
  // started quickly there.
  void OnSmsBusy(GlobalDeviceId device, absl::Time until) {
    home_.Check();
    sms_busy_until_[device] = until;
  }

  // What was measured of transfers like this one, to be told of a launch (OnLaunch) and of its end
  // (OnDone). It stays where it is: by the end of the launch another peer may have the device, or
  // the device be of another kind.
  RouteEstimate& EstimateOf(Route route, const MatchKey& key);
  // Arenas of the peer's that `mapped` could not reach.
  UnmappedArenas& UnmappedOf(PeerId peer) {
    home_.Check();
    return peers_[peer.value()].unmapped;
  }
  const UnmappedArenas& UnmappedOf(PeerId peer) const { return peers_[peer.value()].unmapped; }

  // --- Questions.

  struct Picked {
    Route route = Route::kUnspecified;  // none is available
    // How much faster nccl would be, if its communicator were open.
    absl::Duration missed;
  };
  // Of the routes that are available and not in `excluded` (RouteBit each): the first one in the
  // configured order, or one that is clearly faster. `lasting`: for all firings of a prepared
  // transfer.
  Picked Pick(absl::Time now, GlobalDeviceId source, GlobalDeviceId destination, uint64_t bytes,
              uint8_t excluded, bool lasting) const;
  bool InOrder(Route route) const;
  bool Available(Route route, GlobalDeviceId source, GlobalDeviceId destination) const;
  // Why not, of a route that is not available between the two.
  std::string WhyNot(Route route, GlobalDeviceId source, GlobalDeviceId destination) const;
  // Whether groups between these two devices, one ours and one the peer's, could be launched here.
  bool MakesGroups(PeerId peer, const Clique& clique) const;
  // Whether a kernel of the clique's communicator would have to wait at either end.
  bool SmsBusy(absl::Time now, const Clique& clique) const;
  // What a small group of the clique takes if the SMs are idle, as measured or assumed.
  std::optional<absl::Duration> UsualGroup(PeerId peer, const Clique& clique) const;
  // The daemon at the other end of a transfer between the two devices; ourselves if both are ours.
  PeerId OtherEnd(GlobalDeviceId source, GlobalDeviceId destination) const {
    return EndsOf(source, destination).peer;
  }
  // All routes of the order, in it. One of the devices is ours.
  std::vector<RouteOption> Explain(absl::Time now, GlobalDeviceId source,
                                   GlobalDeviceId destination, uint64_t bytes) const;

 private:
  struct OfPeer {
    bool up = false;
    absl::Status last_error = absl::UnavailableError("no connection yet");
    RouteTable routes;
    bool groups = false;  // nccl was available once on this link: its groups may be launched
    absl::flat_hash_set<GlobalDeviceId> gpus;  // of its devices
    UnmappedArenas unmapped;                   // until its routes are told anew
    // Of what we receive from it; the second row with a GPU at one end or both.
    std::array<std::array<RouteEstimate, kRoutes>, 2> estimates;
  };
  // What is the same for all transfers between two devices.
  struct Ends {
    GlobalDeviceId source;
    GlobalDeviceId destination;
    PeerId peer;  // the other end's daemon; ourselves if both ends are ours
    bool source_gpu = false;
    bool destination_gpu = false;
  };

  // Valid until it is asked for other devices, or a link is up.
  const Ends& EndsOf(GlobalDeviceId source, GlobalDeviceId destination) const;
  bool IsGpu(GlobalDeviceId device) const;
  // Why these two devices cannot take a route between their daemons; "" if they can. Valid until
  // the peer's routes are told anew.
  absl::string_view KindsObject(Route route, const Ends& ends) const;
  const RouteEstimate& Measured(Route route, GlobalDeviceId source,
                                GlobalDeviceId destination) const;
  // By what was measured, the prior, and whether the SMs that the route needs are busy.
  std::optional<RouteTime> TimeOf(absl::Time now, Route route, GlobalDeviceId source,
                                  GlobalDeviceId destination, uint64_t bytes, bool lasting) const;
  const RoutePrior* PriorOf(Route route, GlobalDeviceId source, GlobalDeviceId destination) const;
  // Explain's figures of one route, where the destination is ours.
  void ExplainTime(absl::Time now, GlobalDeviceId source, GlobalDeviceId destination,
                   uint64_t bytes, RouteOption& option) const;
  // Why an available route is chosen or not. `first`: of those that are available.
  std::string ExplainChoice(const RouteOption& option, bool first, bool decides,
                            const Picked& picked, GlobalDeviceId source,
                            GlobalDeviceId destination) const;

  const DeviceMap& devices_;
  const DeviceOwners& owners_;
  const std::vector<Route> order_;
  bool by_estimate_;
  const CommOf comm_of_;
  std::deque<OfPeer> peers_;               // by PeerId; they stay where they are
  mutable std::optional<Ends> last_ends_;  // a batch has the same again and again
  absl::btree_map<GlobalDeviceId, absl::Time> sms_busy_until_;  // of our GPUs, as lanes say
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
