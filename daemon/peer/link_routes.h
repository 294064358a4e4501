// SPDX-License-Identifier: Apache-2.0
// All routes between this daemon and its peers: one LinkRoute each, asked in turn. Makes our hello,
// which says to a peer what our devices and routes can, and the table of routes of a link that goes
// up. Home: control. Owner: PeerTable; PeerLink calls.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/local_devices.h"
#include "daemon/peer/introduction.h"
#include "daemon/peer/link_route.h"
#include "daemon/peer/nccl_links.h"
#include "daemon/peer/peer_stream.h"
#include "daemon/peer/tcp_links.h"
#include "daemon/peer/ucx_links.h"
#include "transfer/route_table.h"

namespace ferry {

class LinkRoutes {
 public:
  struct Options {
    // The transports of our devices that links have to do with.
    TcpLinks::Transports tcp;
    UcxLinks::Transports ucx;
    std::string ucx_missing;   // if there is no UCX: why
    std::string nccl_missing;  // if there is no NCCL: why
  };
  // `own_ids`: our devices by membership, also GPUs that are missing.
  LinkRoutes(const OwnDaemon& own, LocalDevices& devices, std::vector<GlobalDeviceId> own_ids,
             const Options& options);

  TcpLinks& tcp() {
    home_.Check();
    return tcp_;
  }
  UcxLinks& ucx() {
    home_.Check();
    return ucx_;
  }
  const UcxLinks& ucx() const { return ucx_; }

  // What we say of ourselves to the daemon `to` once both have proven who they are.
  PeerHello MakeHello(PeerId to) const;
  // Leaves in a peer's hello nothing that UCX here does not understand.
  void Trim(PeerHello& theirs) const;
  // The peer has said that UCX reaches these devices at other addresses than its hello says.
  // Returns whether the hello, which is changed, counts: UCX is of one version.
  bool OnMoved(PeerHello& theirs, std::vector<PeerDeviceInfo> moved) const;

  // As the functions of LinkRoute, for all routes. GoUp: `mapped_error` says why the peer's arenas
  // cannot be mapped; "" if they can.
  void Start(const LinkView& link);
  bool IsUnsettled(PeerId peer) const;
  bool GiveUp(PeerId peer, absl::Duration patience);
  RouteTable GoUp(const LinkView& link, const std::string& mapped_error);
  void Stop(PeerId peer, const absl::Status& why);

 private:
  const OwnDaemon& own_;
  LocalDevices& devices_;
  const std::vector<GlobalDeviceId> own_ids_;
  TcpLinks tcp_;
  UcxLinks ucx_;
  NcclLinks nccl_;
  const std::array<LinkRoute*, 3> routes_ = {&tcp_, &ucx_, &nccl_};
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
