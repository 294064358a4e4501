// SPDX-License-Identifier: Apache-2.0
// What the classes of this folder share with the engine that owns them. All of it outlives them.
// Plain data. Home: control.
#pragma once

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "transfer/clique/clique_options.h"
#include "transfer/clique/group.h"
#include "transfer/device_map.h"
#include "transfer/device_owners.h"
#include "transfer/outbox.h"
#include "transfer/route_choice.h"

namespace ferry {

struct CliqueContext {
  const DeviceMap& devices;
  const DeviceOwners& owners;
  const RouteChoice& routes;
  const CliqueOptions& options;
  const absl::Duration& group_time;  // EngineOptions::Bounds::group_time; may change at any time
  const absl::Time& now;             // the time of the engine's call that is under way
  Outbox& out;

  // The daemon of a device that is known, or was when a transfer with it was posted.
  PeerId OwnerOf(GlobalDeviceId device) const { return owners[device]; }
  bool Ours(GlobalDeviceId device) const { return OwnerOf(device) == devices.self; }
  // Whether the clique is one of a device of `leader` and a higher device of `follower`, both of
  // which are there now.
  bool Leads(PeerId leader, const Clique& clique, PeerId follower) const {
    return clique.low < clique.high && owners.Find(clique.low) == leader &&
           owners.Find(clique.high) == follower;
  }
  // Whether `peer` leads the clique, which has a device of ours, and its groups could be launched
  // here; and whether we do, with `peer` as the follower.
  bool LedBy(PeerId peer, const Clique& clique) const {
    return Leads(peer, clique, devices.self) && routes.MakesGroups(peer, clique);
  }
  bool LedByUs(PeerId peer, const Clique& clique) const {
    return Leads(devices.self, clique, peer) && routes.MakesGroups(peer, clique);
  }
  template <typename Message>
  void Send(PeerId peer, Message message) const {
    out.messages.emplace_back(peer, std::move(message));
  }
};

}  // namespace ferry
