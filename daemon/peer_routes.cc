// SPDX-License-Identifier: Apache-2.0
// PeerTable's view of which routes can be had with a peer, once both have said hello.
#include "absl/strings/str_cat.h"
#include "daemon/peer_link.h"

namespace ferry {

RouteState PeerTable::NcclWith(const Link& link) const {
  RouteState state;
  const std::string& theirs = link.hello.nccl_version;
  if (options_.nccl_version.empty()) {
    state.why = options_.nccl_missing;
  } else if (theirs.empty()) {
    state.why = absl::StrCat(link.config.node, " has no NCCL that is opened");
  } else if (theirs != options_.nccl_version) {
    state.why = absl::StrCat("NCCL is ", options_.nccl_version, " here and ", theirs, " at ",
                             link.config.node, ": one communicator needs one version");
  } else {
    state.available = true;
  }
  for (const auto& ours : devices_.list) {
    for (const PeerDeviceInfo& other : link.hello.devices) {
      const Clique clique = CliqueOf(ours->id, other.id);
      if (ours->gpu == nullptr || !other.gpu) {
        state.except[clique] = "it moves memory of GPUs only";
      } else if (ours->gpu->info().uuid == other.uuid) {
        state.except[clique] = absl::StrCat("both devices are ", ours->gpu->info().uuid_text(),
                                            ": NCCL takes no two ranks on one GPU");
      }
    }
  }
  return state;
}

}  // namespace ferry
