// SPDX-License-Identifier: Apache-2.0
// DrainNews knows who drains: this daemon, so that nothing new is posted here, or a peer. It tells
// peers of ours and hears of theirs.
//
// A draining daemon refuses each send that it is offered and that none of its receives waits for. A
// receive ends where it was posted as soon as its source has said that it drains: all sends of the
// source were offered before. What continues something that is in flight, such as the chunks of a
// file, is the exception: its partner may be posted as long as anything is in flight at the
// daemon that drains.
//
// Home: control. Owner: TransferEngine, which ends and refuses what this class says.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/engine_context.h"
#include "transfer/half_book.h"
#include "transfer/offer_book.h"
#include "transfer/peer_message.h"

namespace ferry {

class DrainNews {
 public:
  DrainNews(const EngineContext& context, const HalfBook& halves)
      : context_(context), halves_(halves) {}

  // This daemon drains, and will end at `until` what is still in flight (infinite: nobody has said
  // when). None: it serves again. Each peer that is up is told.
  void Set(std::optional<absl::Time> until);
  // Tells peers once more when nothing is in flight any more. True if it did.
  bool SetAgainIfEmpty();
  bool on() const { return until_.has_value(); }

  void OnPeerUp(PeerId peer);
  void OnTold(PeerId peer, const Draining& message);

  // While this daemon drains: whether a receive of an offer that waits may still be posted here.
  bool MayBeReceived(const Offered& offered) const;
  // Whether a send of a receive may still be posted at a peer that drains.
  bool MayBeSent(const Posted& receive) const;
  // What the half continues is in flight.
  bool Continues(const Posted& half) const;

  // UNAVAILABLE/DRAINING with the time left. WhyRefused: for an offer to this daemon that no
  // receive may be posted for. WhyEnds: for a receive from a peer that drains.
  absl::Status WhyRefused(const Offered& offered) const;
  absl::Status WhyEnds(const Posted& receive) const;

 private:
  absl::Status WhyNot(const std::string& what, PeerId node, absl::Time until) const;
  void Say(PeerId peer);

  const EngineContext& context_;
  const HalfBook& halves_;
  std::optional<absl::Time> until_;  // see Set
  bool empty_ = false;               // peers know that nothing is in flight here
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
