// SPDX-License-Identifier: Apache-2.0
// Route `ucx` and the links. Lanes are told how to reach the peer's lanes; peers are told how to
// reach ours, in hellos and, when a lane's addresses change, in frames of their own
// (PeerTable::OnUcxMoved). Home: control. Owner: LinkRoutes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/home.h"
#include "daemon/peer/link_route.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

// The target of the link /proc/self/ns/net: names this process's network namespace.
std::string ReadNetworkNamespace();

class UcxLinks : public LinkRoute {
 public:
  // The transport of each device that UCX takes; empty if there is no UCX.
  using Transports = absl::flat_hash_map<GlobalDeviceId, UcxTransport*>;

  // `version`: UCX's, "" if there is none here, and `missing` says why.
  UcxLinks(LocalDevices& devices, Transports transports, std::string version, std::string missing)
      : devices_(devices),
        transports_(std::move(transports)),
        version_(std::move(version)),
        missing_(std::move(missing)) {}

  Route route() const override { return Route::kUcx; }
  void Tell(PeerId to, const LocalDevice& device, PeerHello& hello,
            PeerDeviceInfo& info) const override;
  RouteState GoUp(const LinkView& link, const PeerHello& ours) override;
  void Stop(PeerId peer, const absl::Status& why) override;

  // The link's hello has other addresses of the peer than before.
  void OnMoved(const LinkView& link);
  // Since GoUp: whether lanes know the peer, and if not, why; "" if they do.
  bool IsTold(PeerId peer) const { return known_.contains(peer) && known_.at(peer).empty(); }
  std::string ErrorOf(PeerId peer) const { return known_.contains(peer) ? known_.at(peer) : ""; }
  // What the daemon `to` must know to reach our device.
  std::vector<UcxAddressBlob> AddressesOf(GlobalDeviceId device, PeerId to) const {
    return transports_.at(device)->addresses(to);
  }
  // How UCX reaches the memory of our device, for people; "" if it does not take the device.
  std::string WayOf(GlobalDeviceId device) const {
    const auto transport = transports_.find(device);
    return transport == transports_.end() ? "" : transport->second->way();
  }

 private:
  // Tells our lanes how to reach the peer's devices. Returns whether any of them can be reached.
  bool AddPeers(const LinkView& link);

  LocalDevices& devices_;
  const Transports transports_;
  const std::string version_;
  const std::string missing_;
  absl::flat_hash_map<PeerId, std::string> known_;  // by peer whose link is up: ErrorOf
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
