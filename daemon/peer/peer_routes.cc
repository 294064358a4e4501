// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_routes.h"

#include "absl/strings/str_cat.h"

namespace ferry {

RouteState NcclBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs,
                       bool within_host) {
  RouteState state;
  if (ours.nccl_version.empty()) {
    state.why = missing;
  } else if (theirs.nccl_version.empty()) {
    state.why = absl::StrCat(theirs.node, " has no NCCL open");
  } else if (theirs.nccl_version != ours.nccl_version) {
    state.why = absl::StrCat("NCCL is ", ours.nccl_version, " here and ", theirs.nccl_version,
                             " at ", theirs.node, ": one communicator needs one version");
  } else {
    state.available = true;
  }
  if (state.available && within_host) state.prior = kNcclWithinHost;
  for (const PeerDeviceInfo& own : ours.devices) {
    for (const PeerDeviceInfo& other : theirs.devices) {
      const Clique clique = CliqueOf(own.id, other.id);
      if (!own.gpu || !other.gpu) {
        state.except[clique] = "it moves memory of GPUs only";
      } else if (own.uuid == other.uuid && !own.uuid.empty()) {
        state.except[clique] = "both devices are one GPU, and NCCL takes no two ranks on one";
      }
    }
  }
  return state;
}

RouteState StagedBetween(const std::string& missing, bool within_host) {
  RouteState state{missing.empty(), missing};
  if (state.available && within_host) state.prior = kStagedWithinHost;
  return state;
}

RouteState UcxBetween(const PeerHello& ours, const std::string& missing, const PeerHello& theirs,
                      bool within_host) {
  if (!ours.ucx_version.empty() && !theirs.ucx_version.empty() &&
      ours.ucx_version != theirs.ucx_version) {
    return {false, absl::StrCat("UCX is ", ours.ucx_version, " here and ", theirs.ucx_version,
                                " at ", theirs.node, ": its addresses are for one version")};
  }
  return StagedBetween(missing, within_host);
}

}  // namespace ferry
