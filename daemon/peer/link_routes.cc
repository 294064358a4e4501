// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/link_routes.h"

#include <algorithm>
#include <utility>

namespace ferry {

LinkRoutes::LinkRoutes(const OwnDaemon& own, LocalDevices& devices,
                       std::vector<GlobalDeviceId> own_ids, const Options& options)
    : own_(own),
      devices_(devices),
      own_ids_(std::move(own_ids)),
      tcp_(devices, options.tcp),
      ucx_(devices, options.ucx, own.ucx_version, options.ucx_missing),
      nccl_(options.nccl_missing) {}

PeerHello LinkRoutes::MakeHello(PeerId to) const {
  home_.Check();
  PeerHello hello;
  static_cast<PeerIntroduction&>(hello) = own_.Introduce();
  hello.ucx_version = own_.ucx_version;
  hello.daemon_version = FERRY_VERSION;
  hello.nccl_version = own_.nccl_version;
  hello.network_namespace = ReadNetworkNamespace();
  for (const auto& device : devices_.list) {
    PeerDeviceInfo info{device->id, {}, device->gpu != nullptr};
    info.uuid = device->info().uuid;
    info.name = device->name;
    for (const LinkRoute* const route : routes_) route->Tell(to, *device, hello, info);
    hello.devices.push_back(std::move(info));
  }
  // GPUs that are missing are listed too: the peer compares the ids with its own membership.nodes,
  // where they are ours. What it sends to one of them is refused.
  for (const GlobalDeviceId id : own_ids_) {
    if (devices_.Find(id) != nullptr) continue;
    PeerDeviceInfo& missing = hello.devices.emplace_back(PeerDeviceInfo{id, {}, /*gpu=*/true});
    missing.name = "missing";
  }
  return hello;
}

void LinkRoutes::Trim(PeerHello& theirs) const {
  // UCX ends the process for an address that it does not understand.
  if (theirs.ucx_version == own_.ucx_version) return;
  for (PeerDeviceInfo& device : theirs.devices) device.ucx_addresses.clear();
}

bool LinkRoutes::OnMoved(PeerHello& theirs, std::vector<PeerDeviceInfo> moved) const {
  if (theirs.ucx_version != own_.ucx_version) return false;
  for (PeerDeviceInfo& now : moved) {
    for (PeerDeviceInfo& device : theirs.devices) {
      if (device.id == now.id) device.ucx_addresses = std::move(now.ucx_addresses);
    }
  }
  return true;
}

void LinkRoutes::Start(const LinkView& link) {
  home_.Check();
  for (LinkRoute* const route : routes_) route->Start(link);
}

bool LinkRoutes::IsUnsettled(PeerId peer) const {
  home_.Check();
  return std::any_of(routes_.begin(), routes_.end(),
                     [&](const LinkRoute* route) { return route->IsUnsettled(peer); });
}

bool LinkRoutes::GiveUp(PeerId peer, absl::Duration patience) {
  home_.Check();
  bool known = false;
  for (LinkRoute* const route : routes_) known |= route->GiveUp(peer, patience);
  return known;
}

RouteTable LinkRoutes::GoUp(const LinkView& link, const std::string& mapped_error) {
  home_.Check();
  RouteTable table(kRoutes);
  table[static_cast<size_t>(Route::kLocal)].why = "the devices belong to two daemons";
  table[static_cast<size_t>(Route::kMapped)] = {link.mapped, mapped_error};
  const PeerHello ours = MakeHello(link.peer);
  for (LinkRoute* const route : routes_) {
    table[static_cast<size_t>(route->route())] = route->GoUp(link, ours);
  }
  return table;
}

void LinkRoutes::Stop(PeerId peer, const absl::Status& why) {
  home_.Check();
  for (LinkRoute* const route : routes_) route->Stop(peer, why);
}

}  // namespace ferry
