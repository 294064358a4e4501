// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/callers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hmac.h"
#include "base/status.h"
#include "daemon/peer/peer_proof.h"

namespace ferry {

void Callers::MakeRoom() {
  home_.Check();
  if (callers_.size() < kMost) return;
  Refuse(callers_.begin()->first,
         Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
               absl::StrCat("link to ", own_.node, ": ", kMost,
                            " others have not proven who they are either")));
}

void Callers::Add(uint64_t number, PeerId peer, std::unique_ptr<PeerStream> stream,
                  PeerIntroduction theirs) {
  home_.Check();
  Caller& caller = callers_[number];
  caller = {peer, std::move(stream), own_.Introduce(), std::move(theirs), control_.Now()};
  PeerFrame frame;
  frame.introduction = caller.ours;
  if (!own_.secret.empty()) {
    frame.proof = PeerProof(own_.secret, PeerSide::kAcceptor, {caller.theirs, caller.ours});
  }
  caller.stream->Send(std::move(frame));
}

const Callers::Caller* Callers::Find(uint64_t number) const {
  home_.Check();
  const auto caller = callers_.find(number);
  return caller == callers_.end() ? nullptr : &caller->second;
}

bool Callers::IsProof(const Caller& caller, const PeerFrame& frame) const {
  return !own_.secret.empty() && SameBytes(frame.proof, PeerProof(own_.secret, PeerSide::kDialler,
                                                                  {caller.theirs, caller.ours}));
}

std::optional<uint64_t> Callers::FindProven(const PeerSocketHello& hello) const {
  home_.Check();
  if (!own_.secret.empty()) return std::nullopt;
  const auto found = std::find_if(callers_.begin(), callers_.end(), [&](const auto& entry) {
    const Caller& caller = entry.second;
    return SameBytes(caller.ours.nonce, hello.asked_nonce) &&
           hello.random.size() == kPeerSecretBytes &&
           SameBytes(hello.proof,
                     PeerProof(hello.random, PeerSide::kDialler, {caller.theirs, caller.ours}));
  });
  if (found == callers_.end()) return std::nullopt;
  return found->first;
}

Callers::Caller Callers::Take(uint64_t number) {
  home_.Check();
  const auto found = callers_.find(number);
  Caller caller = std::move(found->second);
  callers_.erase(found);
  return caller;
}

void Callers::Forget(uint64_t number) {
  home_.Check();
  callers_.erase(number);
}

void Callers::Refuse(uint64_t number, const absl::Status& why) {
  home_.Check();
  const auto caller = callers_.find(number);
  caller->second.stream->Close(why);
  callers_.erase(caller);
}

void Callers::RefuseAllOf(PeerId peer, const absl::Status& why) {
  home_.Check();
  for (auto it = callers_.begin(); it != callers_.end();) {
    const auto caller = it++;
    if (caller->second.peer == peer) Refuse(caller->first, why);
  }
}

void Callers::RefuseAll(const absl::Status& why) {
  home_.Check();
  while (!callers_.empty()) Refuse(callers_.begin()->first, why);
}

absl::Time Callers::OnTime(absl::Time now) {
  home_.Check();
  while (!callers_.empty() && callers_.begin()->second.since + kPatience <= now) {
    Refuse(callers_.begin()->first, NotProven(absl::StrCat("link to ", own_.node,
                                                           ": the caller did not prove who it is "
                                                           "in time")));
  }
  return callers_.empty() ? absl::InfiniteFuture() : callers_.begin()->second.since + kPatience;
}

}  // namespace ferry
