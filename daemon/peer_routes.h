// SPDX-License-Identifier: Apache-2.0
// Which routes can be had between two daemons, from what both have said in their hellos.
// `within_host`: what only one kernel can pass has gone from one to the other. Pure.
#pragma once

#include <string>

#include "daemon/peer_stream.h"
#include "transfer/engine.h"

namespace ferry {

// `ours` is our own hello; `missing` says why there is no NCCL here, if there is none.
RouteState NcclBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs,
                       bool within_host);
// Of `tcp` or `ucx`, by which the bytes of GPUs go through host memory: available if `missing` is
// empty.
RouteState StagedBetween(const std::string& missing, bool within_host);
RouteState UcxBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs,
                      bool within_host);

}  // namespace ferry
