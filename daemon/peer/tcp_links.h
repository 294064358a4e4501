// SPDX-License-Identifier: Apache-2.0
// Route `tcp` and the links. Lanes are told of a peer once it has proven who it is. The first set
// of connections that opens shows that the route works. Data connections are given to the lane that
// they are for. Home: control. Owner: LinkRoutes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/fd.h"
#include "base/home.h"
#include "daemon/peer/link_route.h"
#include "transfer/tcp/tcp_transport.h"

namespace ferry {

class TcpLinks : public LinkRoute {
 public:
  // The transport of each device; empty if the route is not opened.
  using Transports = absl::flat_hash_map<GlobalDeviceId, TcpTransport*>;

  TcpLinks(LocalDevices& devices, Transports transports)
      : devices_(devices), transports_(std::move(transports)) {}

  Route route() const override { return Route::kTcp; }
  void Tell(PeerId to, const LocalDevice& device, PeerHello& hello,
            PeerDeviceInfo& info) const override;
  void Start(const LinkView& link) override;
  bool IsUnsettled(PeerId peer) const override;
  bool GiveUp(PeerId peer, absl::Duration patience) override;
  RouteState GoUp(const LinkView& link, const PeerHello& ours) override;
  void Stop(PeerId peer, const absl::Status& why) override;

  // The connections that a lane opened to try the route are open, or could not be opened. False if
  // nobody waits for that.
  bool OnOpened(PeerId peer, uint64_t link_number, const absl::Status& status);
  // A data connection has arrived with its preamble, of which nothing is proven yet. Closes one
  // that belongs to no link, or that does not prove that it is the peer's.
  void OnDataConnection(const std::string& preamble, UniqueFd socket);

 private:
  // A peer since its hello.
  struct Known {
    uint64_t number = 0;  // of the link's stream
    bool dialled = false;
    std::string node;
    std::vector<GlobalDeviceId> devices;
    std::string secret;
    bool told = false;  // lanes know the peer
    std::string id;     // by which its data connections are known; "" unless `told`
    bool unsettled = false;
    std::string error;  // why the route cannot be taken; "" if it can
  };
  bool Settle(PeerId peer, std::string error);

  LocalDevices& devices_;
  const Transports transports_;
  absl::flat_hash_map<PeerId, Known> known_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
