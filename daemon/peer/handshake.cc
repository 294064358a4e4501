// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/handshake.h"

#include "absl/strings/str_cat.h"
#include "base/hmac.h"
#include "base/status.h"
#include "daemon/peer/peer_proof.h"

namespace ferry {

const PeerIntroduction& Handshake::Dial(bool in_reverse, bool visiting) {
  home_.Check();
  ours_ = own_.Introduce();
  ours_.in_reverse = in_reverse;
  ours_.visiting = visiting;
  theirs_ = PeerIntroduction();
  dialled_ = true;
  return ours_;
}

absl::Status Handshake::OnIntroduction(const PeerConfig& peer, const PeerFrame& frame) {
  home_.Check();
  RETURN_IF_ERROR(CheckIntroduction(own_, peer, *frame.introduction));
  theirs_ = *frame.introduction;
  if (own_.secret.empty()) {
    random_ = RandomBytes(kPeerSecretBytes);
    return absl::OkStatus();
  }
  if (SameBytes(frame.proof, PeerProof(own_.secret, PeerSide::kAcceptor, {ours_, theirs_}))) {
    return absl::OkStatus();
  }
  return NotProven(absl::StrCat(LinkBetween(own_, peer), "the daemon at ", peer.address,
                                " did not prove that it has the secret of ", own_.node,
                                "; peer.secret_file must be the same on all nodes"));
}

std::string Handshake::Proof() const {
  home_.Check();
  return PeerProof(own_.secret, PeerSide::kDialler, {ours_, theirs_});
}

PeerSocketHello Handshake::SocketHello() const {
  home_.Check();
  PeerSocketHello hello{own_.node, theirs_.nonce};
  if (!proven_) {
    hello.random = random_;
    hello.proof = PeerProof(random_, PeerSide::kDialler, {ours_, theirs_});
  }
  return hello;
}

void Handshake::Accept(const Callers::Caller& caller, absl::string_view material) {
  home_.Check();
  dialled_ = false;
  ours_ = caller.ours;
  theirs_ = caller.theirs;
  Prove(material);
}

void Handshake::Prove(absl::string_view material) {
  home_.Check();
  proven_ = true;
  secret_ = PeerLinkSecret(material,
                           dialled_ ? PeerParties{ours_, theirs_} : PeerParties{theirs_, ours_});
}

void Handshake::End() {
  home_.Check();
  proven_ = false;
  secret_.clear();
}

}  // namespace ferry
