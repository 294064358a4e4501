// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/introduction.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/peer/peer_proof.h"

namespace ferry {
namespace {

// "0, 1, 2"; of many ids only the first.
std::string ShownIds(const std::vector<uint64_t>& sorted) {
  constexpr size_t kShown = 16;
  if (sorted.empty()) return "none";
  const size_t shown = std::min(sorted.size(), kShown);
  return absl::StrCat(
      absl::StrJoin(absl::MakeConstSpan(sorted).first(shown), ", "),
      sorted.size() > shown ? absl::StrCat(" and ", sorted.size() - shown, " more") : "");
}

}  // namespace

std::string ReadBootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

bool OwnDaemon::TrustsUid(uint32_t uid) const {
  return uid == geteuid() ||
         std::find(trusted_uids.begin(), trusted_uids.end(), uid) != trusted_uids.end();
}

PeerIntroduction OwnDaemon::Introduce() const {
  PeerIntroduction introduction;
  introduction.node = node;
  introduction.incarnation = incarnation;
  introduction.boot_id = boot_id;
  introduction.uid = geteuid();
  introduction.peer_socket = peer_socket;
  introduction.nonce = RandomBytes(kPeerNonceBytes);
  return introduction;
}

std::string LinkBetween(const OwnDaemon& own, const PeerConfig& peer) {
  return absl::StrCat("link between ", own.node, " and ", peer.node, ": ");
}

absl::Status NotProven(const std::string& what) {
  return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed, what);
}

absl::Status NeedsSecret(const std::string& what) {
  return NotProven(absl::StrCat(
      what,
      "make a secret with `head -c 32 /dev/urandom > ferry.secret`, give it to all nodes, and set "
      "peer.secret_file to it"));
}

absl::Status CheckIntroduction(const OwnDaemon& own, const PeerConfig& peer,
                               const PeerIntroduction& introduction) {
  const auto bad = [&](Reason reason, const std::string& what) {
    return Error(absl::StatusCode::kFailedPrecondition, reason, LinkBetween(own, peer) + what);
  };
  if (!kPeerProtocol.Meet(introduction.protocol)) {
    const std::string theirs = Printable(introduction.node);
    return bad(
        Reason::kProtocolVersion,
        absl::StrCat(theirs, " speaks ", introduction.protocol.ToString(),
                     " of the protocol between daemons, ", own.node, " speaks ",
                     kPeerProtocol.ToString(), "; update ferryd at ",
                     introduction.protocol.newest < kPeerProtocol.oldest ? theirs : own.node));
  }
  if (introduction.node != peer.node) {
    return bad(Reason::kConfigInvalid,
               absl::StrCat("the daemon at ", peer.address, " is '", Printable(introduction.node),
                            "'; check membership.nodes on both"));
  }
  if (!own.secret.empty()) return absl::OkStatus();
  if (introduction.boot_id != own.boot_id) {
    return NeedsSecret(
        absl::StrCat(LinkBetween(own, peer), peer.node, " is on another host than ", own.node,
                     ", and without a shared secret only daemons of one host find each other; "));
  }
  if (!own.TrustsUid(introduction.uid)) {
    return NeedsSecret(absl::StrCat(LinkBetween(own, peer), peer.node, " runs as uid ",
                                    introduction.uid, ", which peer.uids of ", own.node,
                                    " does not list, and there is no shared secret; list it, or "));
  }
  return absl::OkStatus();
}

absl::Status CheckRole(const OwnDaemon& own, const PeerConfig* peer, const std::string& node,
                       bool dials) {
  if (peer != nullptr && own.Dials(*peer) == dials) return absl::OkStatus();
  const std::string between =
      absl::StrCat("link between ", own.node, " and '", Printable(node), "': ");
  if (peer == nullptr) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                 absl::StrCat(between, "'", Printable(node), "' is not among membership.nodes of ",
                              own.node));
  }
  return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
               absl::StrCat(between, "of these names it is ", dials ? "the caller" : own.node,
                            " that dials, so the caller takes ", own.node,
                            " for another node; check membership.nodes on both"));
}

absl::Status CheckDevices(const OwnDaemon& own, const PeerConfig& peer, const PeerHello& hello) {
  std::vector<uint64_t> theirs, expected;
  for (const PeerDeviceInfo& device : hello.devices) theirs.push_back(device.id.value());
  for (const GlobalDeviceId id : peer.devices) expected.push_back(id.value());
  std::sort(theirs.begin(), theirs.end());
  std::sort(expected.begin(), expected.end());
  if (theirs == expected) return absl::OkStatus();
  return Error(
      absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
      absl::StrCat(LinkBetween(own, peer), peer.node, " has the global device ids ",
                   ShownIds(theirs), ", and by membership.nodes of ", own.node, " it would have ",
                   ShownIds(expected), "; membership.nodes must be the same on both"));
}

}  // namespace ferry
