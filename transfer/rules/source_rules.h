// SPDX-License-Identifier: Apache-2.0
// SourceRules decides what becomes of a send at the source's daemon, if its receive is a peer's: it
// offers the send, launches or arms its half when the destination says so (Go), and ends it when
// the destination says that it is over (Done).
//
// An example. Send 3/17 is offered to node-b. Go of attempt 1 launches its half by `tcp`. Go of
// attempt 2 comes while that launch is under way: it is aborted, and attempt 2 is launched when the
// lane has answered. Done ends 3/17.
//
// Refuses messages that make no sense: an id that is over, or a state in which the step may not be.
//
// Home: control. Owner: TransferEngine.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/cliques.h"
#include "transfer/engine_context.h"
#include "transfer/half_book.h"
#include "transfer/long_waits.h"
#include "transfer/posted.h"
#include "transfer/rules/half_ends.h"
#include "transfer/rules/half_tables.h"
#include "transfer/rules/launch_rules.h"

namespace ferry {

class SourceRules {
 public:
  // What the rules read and change besides the halves that they are called with.
  struct Books {
    HalfBook& halves;
    HalfTables& tables;
    LongWaits& long_waits;
    Cliques& cliques;
  };
  SourceRules(const EngineContext& context, const Books& books, LaunchRules& launches,
              HalfEnds& ends)
      : context_(context), books_(books), launches_(launches), ends_(ends) {}

  // Offers the send, or the convoy of sends, to the destination's daemon. The link is up.
  void SendOffer(absl::Time now, Posted& send);
  // Asks the destination's daemon to end an offered send with `why`; if the launch is under way, to
  // abort it. An answer that echoes the first such reason ends the send with that.
  void SendWithdraw(Posted& send, absl::Status why);
  // The send of this id that was offered to the peer and is not over; null if there is none.
  Posted* FindSendTo(PeerId peer, TransferId id) const;

  // A lane of ours has answered the launch of a send.
  void OnSendDone(Posted& send, const absl::Status& status);
  // No group carries the send any more: it ends, or the destination's next launch begins.
  void GoOn(Posted& send);

  // --- What the destination's daemon says. Each is false for a message that makes no sense.

  bool OnMatched(PeerId peer, const Matched& matched);
  bool OnGo(PeerId peer, Go go);
  bool OnDone(PeerId peer, Done done);
  bool OnHandOver(PeerId peer, const HandOver& message);
  bool OnTakeBack(PeerId peer, const TakeBack& message);

 private:
  void LaunchSend(Posted& send, const Go& go);
  // Whether `go` may be obeyed in the state that the send is in.
  bool MayGo(const Posted& send, const Go& go) const;
  // The status of a send that the destination says is over.
  absl::Status StatusOf(PeerId peer, const Posted& send, Done& done);

  const EngineContext& context_;
  const Books books_;
  LaunchRules& launches_;
  HalfEnds& ends_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
