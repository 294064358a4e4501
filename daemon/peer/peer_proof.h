// SPDX-License-Identifier: Apache-2.0
// How the two daemons of a link prove to each other who they are, and make the secret of the link.
// Pure but for random bytes. Any thread.
//
// With a shared secret (peer.secret_file) each side sends a hash of both introductions, keyed with
// the secret. Both nonces are in the introductions. So a proof cannot be said again on another
// link, nor by the other side. Without a shared secret the proof is peer.sock: there the kernel
// tells each side the other's uid; see daemon/peer/handshake.h.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/hmac.h"
#include "daemon/peer/peer_stream.h"

namespace ferry {

inline constexpr size_t kPeerNonceBytes = 32;
inline constexpr size_t kPeerSecretBytes = kHmacBytes;

// Random bytes from the kernel.
std::string RandomBytes(size_t count);

// What both ends have said of themselves on one link.
struct PeerParties {
  const PeerIntroduction& dialler;
  const PeerIntroduction& acceptor;
};
enum class PeerSide { kDialler, kAcceptor };

// The proof that `side` has the secret.
std::string PeerProof(absl::string_view secret, PeerSide side, const PeerParties& parties);
// The link's secret of kPeerSecretBytes bytes. Only who has `material` can make it: the cluster's
// secret, or the shares that both gave each other over peer.sock.
std::string PeerLinkSecret(absl::string_view material, const PeerParties& parties);

}  // namespace ferry
