// SPDX-License-Identifier: Apache-2.0
// Decides which routes two daemons have between them, from what both said in their hellos.
// `within_host`: each has received a descriptor from the other, which works on one host alone.
// Pure.
#pragma once

#include <string>

#include "daemon/peer/peer_stream.h"
#include "transfer/engine.h"

namespace ferry {

// Route `nccl`. `ours` is this daemon's own hello. `missing`: why there is no NCCL here; "" if
// there is.
RouteState NcclBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs,
                       bool within_host);
// Route `tcp` or `ucx`, where the bytes of GPUs go through host memory. The route is available if
// `missing` is empty; else `missing` says why not.
RouteState StagedBetween(const std::string& missing, bool within_host);
RouteState UcxBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs,
                      bool within_host);

}  // namespace ferry
