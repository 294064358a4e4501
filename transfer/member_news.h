// SPDX-License-Identifier: Apache-2.0
// MemberNews tells peers who is a member of a domain on a device of ours, hears the same from them,
// and says of a half that waits whether it waits in vain: nobody is left who could post its
// partner. What the places are and when they are deserted: transfer/members.h.
//
// After a place was deserted, the engine goes once over all halves (a sweep). A sweep begins
// 100 ms (kSweepEvery) after the last one at the earliest, so that a client that joins and dies in
// a loop does not keep control busy.
//
// Home: control. Owner: TransferEngine.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/engine_context.h"
#include "transfer/members.h"
#include "transfer/peer_message.h"

namespace ferry {

class MemberNews {
 public:
  explicit MemberNews(const EngineContext& context)
      : context_(context), members_(context.devices.self) {}

  // A session of this daemon joins. RESOURCE_EXHAUSTED/QUEUE_FULL: the session has joined on too
  // many devices.
  absl::Status Join(SessionId session, const MemberPlace& place, absl::string_view name);
  // The session is over.
  void LeaveAll(SessionId session);

  // A link is up: the peer is told all places of this daemon.
  void OnPeerUp(PeerId peer);
  void OnPeerLost(PeerId peer) {
    home_.Check();
    members_.OnPeerLost(peer);
  }
  // The peer has left, with its devices.
  void Forget(PeerId peer) {
    home_.Check();
    members_.Forget(peer);
  }
  // False for a message that makes no sense: the device is not the peer's, or a bound is passed.
  bool OnTold(PeerId peer, const MembersTold& message);

  bool any_deserted() const { return members_.any_deserted(); }
  // Of a half of `side`: the place where its partner would be posted is deserted.
  bool IsDeserted(Side side, const MatchKey& key) const { return Deserted(side, key) != nullptr; }
  // Why a half that waits for its partner ends now: ABORTED/PEER_CLIENT_GONE. OK: it may wait.
  absl::Status WhyInVain(const Posted& half) const;
  // Whether a sweep begins now. `under_way`: the last one has not ended.
  bool TakeSweep(bool under_way);
  // TakeSweep is false before this, unless a place is deserted meanwhile.
  absl::Time NextSweep() const;

  const Members& members() const { return members_; }

 private:
  const Members::Place* Deserted(Side side, const MatchKey& key) const;
  // To all peers that take it, or to one of them.
  void SayMembers(const MemberPlace& where);
  void SayMembers(PeerId peer, const MemberPlace& where, const Members::Place& place);
  void WantSweep();

  const EngineContext& context_;
  Members members_;
  absl::Time sweep_at_ = absl::InfiniteFuture();  // when the next sweep begins
  absl::Time last_sweep_ = absl::InfinitePast();
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
