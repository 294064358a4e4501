// SPDX-License-Identifier: Apache-2.0
// How the two ends of one link prove to each other who they are: what both have said of themselves
// on the link's stream, and the link's secret, which is made from the proof.
//
//   dialler    introduction ->
//                           <- introduction, with a secret also proof   acceptor
//   with a secret: proof, hello ->
//   without: on the acceptor's peer.sock, where both see the other's uid, nonces and random bytes
//   for the key; then hello ->
//                           <- hello
//
// Until both have proven who they are the acceptor has a caller (Callers), not a link. Refuses an
// introduction that CheckIntroduction refuses, and with a shared secret one without its proof.
// Sends nothing. Home: control. Owner: PeerLink.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/home.h"
#include "daemon/peer/callers.h"
#include "daemon/peer/introduction.h"
#include "daemon/peer/peer_socket.h"
#include "daemon/peer/peer_stream.h"

namespace ferry {

class Handshake {
 public:
  explicit Handshake(const OwnDaemon& own) : own_(own) {}

  // --- We dial. Begins anew; the answer is what we say first.
  const PeerIntroduction& Dial(bool in_reverse, bool visiting);
  // The first frame of the dialled daemon.
  absl::Status OnIntroduction(const PeerConfig& peer, const PeerFrame& frame);
  // Whether OnIntroduction has found nothing wrong.
  bool is_introduced() const { return !theirs_.nonce.empty(); }
  // What proves to the dialled daemon who we are: with a shared secret the proof for the stream,
  // without one what we say first on its peer.sock.
  std::string Proof() const;
  PeerSocketHello SocketHello() const;
  // Without a shared secret the dialled daemon has answered there: both have proven who they are.
  void OnWelcome(const PeerSocketWelcome& welcome) { Prove(random_ + welcome.random); }

  // --- We were dialled, by a caller that has proven who it is.
  void Accept(const Callers::Caller& caller, absl::string_view material);

  // Both have proven who they are. `material`: as PeerLinkSecret.
  void Prove(absl::string_view material);
  // The stream is no more.
  void End();

  bool is_proven() const { return proven_; }
  // We have opened the stream; while there is no stream: we have opened the last one.
  bool we_dialled() const { return dialled_; }
  const PeerIntroduction& ours() const { return ours_; }
  const PeerIntroduction& theirs() const { return theirs_; }
  // Once proven: 32 bytes that both daemons have and nobody else. Else "".
  const std::string& secret() const { return secret_; }

 private:
  const OwnDaemon& own_;
  bool dialled_ = false;
  PeerIntroduction ours_, theirs_;
  bool proven_ = false;
  std::string secret_;
  std::string random_;  // before the proof, without a shared secret: our share of `secret_`
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
