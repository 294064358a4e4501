// SPDX-License-Identifier: Apache-2.0
// A LinkRoute is what one route has to do with the links to other daemons: what this daemon says of
// the route in its hello, how lanes learn of a peer, and whether the route can be taken between the
// two. One object a route, which keeps by peer what it must remember. Routes `local` and `mapped`
// have none: one needs no link, and the links themselves find out the other (PeerLink).
//
// Of each link PeerLink calls Start, then GoUp once nothing is unsettled, then Stop; or Start,
// then Stop. Owner: LinkRoutes, which is the only caller. Home: control.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "daemon/local_devices.h"
#include "daemon/peer/peer_stream.h"
#include "transfer/route.h"
#include "transfer/route_table.h"

namespace ferry {

// A link as its routes see it. Valid during the call.
struct LinkView {
  PeerId peer;
  uint64_t number = 0;                         // of the link's stream
  bool dialled = false;                        // this daemon has opened the stream
  bool mapped = false;                         // from GoUp on: their arenas can be mapped
  const std::string& node;                     // the peer's name
  const std::vector<GlobalDeviceId>& devices;  // the peer's, by membership
  const std::string& secret;                   // the link's, which both daemons know
  const PeerHello& hello;                      // the peer's
};

class LinkRoute {
 public:
  virtual ~LinkRoute() = default;
  virtual Route route() const = 0;

  // Adds to our hello what the daemon `to` must know of our device.
  virtual void Tell(PeerId /*to*/, const LocalDevice& /*device*/, PeerHello& /*hello*/,
                    PeerDeviceInfo& /*info*/) const {}
  // Hellos are exchanged. If it takes a while to find out whether the route works, IsUnsettled is
  // true until that is known, and the link does not go up.
  virtual void Start(const LinkView& /*link*/) {}
  virtual bool IsUnsettled(PeerId /*peer*/) const { return false; }
  // It was not found out within `patience`, and counts as "no". False if it was known.
  virtual bool GiveUp(PeerId /*peer*/, absl::Duration /*patience*/) { return false; }
  // The link goes up: whether the route can be taken, and if not, why. `ours`: our own hello. Lanes
  // must know the peer before any op names it, so at the latest they are told here.
  virtual RouteState GoUp(const LinkView& link, const PeerHello& ours) = 0;
  // The link is lost: ops with the peer end with `why`. Does nothing if lanes do not know the peer.
  virtual void Stop(PeerId /*peer*/, const absl::Status& /*why*/) {}
};

}  // namespace ferry
