// SPDX-License-Identifier: Apache-2.0
// How the two daemons of a link prove to each other who they are, and the key that both have of it
// afterwards. Pure but for random bytes. Any thread.
//
// With a shared secret (peer.secret_file) each side sends a keyed hash of both introductions, and
// so of both nonces: it cannot be said again on another link, nor by the other side. Without one
// the proof is peer.sock, where the kernel tells both sides each other's uid; see
// daemon/peer_hello.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/hmac.h"
#include "daemon/peer_stream.h"

namespace ferry {

inline constexpr size_t kPeerNonceBytes = 32;
inline constexpr size_t kPeerKeyBytes = kHmacBytes;

// From the kernel.
std::string RandomBytes(size_t count);

// What both ends said of themselves on one link.
struct PeerParties {
  const PeerIntroduction& dialler;
  const PeerIntroduction& acceptor;
};
enum class PeerSide { kDialler, kAcceptor };

// Shows that `side` has the secret.
std::string PeerProof(absl::string_view secret, PeerSide side, const PeerParties& parties);
// The link's key, kPeerKeyBytes: nobody has it who has not `material`, the cluster's secret or what
// both gave each other over peer.sock.
std::string PeerLinkKey(absl::string_view material, const PeerParties& parties);

}  // namespace ferry
