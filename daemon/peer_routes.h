// SPDX-License-Identifier: Apache-2.0
// Which routes can be had between two daemons, from what both have said in their hellos. Pure.
#pragma once

#include <string>

#include "daemon/peer_stream.h"
#include "transfer/engine.h"

namespace ferry {

// `ours` is our own hello; `missing` says why there is no NCCL here, if there is none.
RouteState NcclBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs);
// Of `tcp` or `ucx`, by which the bytes of GPUs go through host memory: available if `missing` is
// empty.
RouteState StagedBetween(const PeerHello& ours, const std::string& missing,
                         const PeerHello& theirs);
RouteState UcxBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs);

}  // namespace ferry
