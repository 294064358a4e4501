// SPDX-License-Identifier: Apache-2.0
// Who this daemon and its peers are: introductions are made here, and checked, before anything of
// them is proven. Both ends of a link check each other alike, and are told the same words. Keeps
// nothing; pure but for the random bytes of a nonce. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "daemon/peer/peer_stream.h"

namespace ferry {

// The text of /proc/sys/kernel/random/boot_id: one id for each boot of a host. Copies of a host (as
// of a virtual machine) may share it.
std::string ReadBootId();

// A peer, as membership.nodes has it.
struct PeerConfig {
  std::string node;
  std::string address;
  std::vector<GlobalDeviceId> devices;
};

// This daemon, as its peers know it.
struct OwnDaemon {
  std::string node;
  Incarnation incarnation;
  std::string boot_id = ReadBootId();
  std::string peer_socket;  // the path of this daemon's own peer.sock
  // The cluster's secret; "": links only to daemons of this host and of trusted uids
  std::string secret;
  std::vector<uint32_t> trusted_uids;  // uids, besides our own, whose daemons may map our arenas
  std::string ucx_version;             // "" if there is no UCX here
  std::string nccl_version;            // "" if there is no NCCL here

  // Whether processes of this uid may be peers or connect to peer.sock.
  bool TrustsUid(uint32_t uid) const;
  // Whether it is this daemon that dials, by the two names. Else the other daemon dials.
  bool Dials(const PeerConfig& peer) const { return node < peer.node; }
  // What this daemon says first on a new link.
  PeerIntroduction Introduce() const;
};

// "link between node-a and node-b: "
std::string LinkBetween(const OwnDaemon& own, const PeerConfig& peer);
// PERMISSION_DENIED/NOT_ALLOWED: somebody did not prove who he is.
absl::Status NotProven(const std::string& what);
// As NotProven. `what` is followed by how to make a shared secret.
absl::Status NeedsSecret(const std::string& what);

// OK if the peer may be the daemon that introduces itself so: they have a protocol in common, its
// name is that of the peer, and without a shared secret it is of this host and of a trusted uid.
absl::Status CheckIntroduction(const OwnDaemon& own, const PeerConfig& peer,
                               const PeerIntroduction& introduction);
// OK if `peer` is not null and it is this daemon that dials the peer (`dials`), or that does not.
// Else the two daemons do not call each other by the same names. `node`: the caller's own name.
absl::Status CheckRole(const OwnDaemon& own, const PeerConfig* peer, const std::string& node,
                       bool dials);
// OK if the peer's devices are those that membership.nodes has for it.
absl::Status CheckDevices(const OwnDaemon& own, const PeerConfig& peer, const PeerHello& hello);

}  // namespace ferry
