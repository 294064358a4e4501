// SPDX-License-Identifier: Apache-2.0
// Whether a link can take route `nccl`: if both hellos agree (NcclBetween). Communicators are
// CommTable's. Home: control. Owner: LinkRoutes.
#pragma once

#include <string>
#include <utility>

#include "base/home.h"
#include "daemon/peer/link_route.h"
#include "daemon/peer/peer_routes.h"

namespace ferry {

class NcclLinks : public LinkRoute {
 public:
  // `missing`: why there is no NCCL here; "" if there is.
  explicit NcclLinks(std::string missing) : missing_(std::move(missing)) {}

  Route route() const override { return Route::kNccl; }
  void Tell(PeerId /*to*/, const LocalDevice& device, PeerHello& /*hello*/,
            PeerDeviceInfo& info) const override {
    info.max_ctas = device.max_ctas;
  }
  RouteState GoUp(const LinkView& link, const PeerHello& ours) override {
    home_.Check();
    return NcclBetween(ours, missing_, link.hello, link.mapped);
  }

 private:
  const std::string missing_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
