// SPDX-License-Identifier: Apache-2.0
// DestinationRules decides what becomes of a pair at the destination's daemon, which decides for
// both ends: it compares the halves, picks the route, orders the launch, tries the next route, and
// hears what the source's daemon says of the send. Also of pairs within this daemon.
//
// An example. Receive 5/9 and the offer 3/17 of node-a match, and both have their data. Match
// launches 5/9 by `mapped`. The lane answers that the mapping is not possible, so OnReceiveDone
// tries the next route, `tcp`: 5/9 is launched again as attempt 2, and a Go tells node-a to launch
// 3/17. When the lane has answered OK, both end, the send by Done.
//
// Refuses messages that make no sense: an id that is over, or a state in which the step may not be.
// Owns the counter of tags: each launch on tcp and ucx gets a number that no other launch of this
// daemon has. Halves and offers are the books'.
//
// Home: control. Owner: TransferEngine.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/engine_context.h"
#include "transfer/posted.h"
#include "transfer/rules/engine_books.h"
#include "transfer/rules/half_ends.h"
#include "transfer/rules/launch_rules.h"

namespace ferry {

class DestinationRules {
 public:
  DestinationRules(const EngineContext& context, const EngineBooks& books, LaunchRules& launches,
                   HalfEnds& ends)
      : context_(context), books_(books), launches_(launches), ends_(ends) {}

  // The matcher has found `source` for the receive. Ends both if they do not fit.
  void Match(Posted& receive, Half source);
  // The same for a half of either side that was posted just now, which the matcher has paired with
  // `waiting`. If that half is a send, the receive waits at this daemon. Starts the half's timer.
  void MatchPosted(Posted& half, Half waiting);
  // Launches if both ends are ready. False if it must wait.
  bool Start(Posted& receive);
  // On a route that is fired by Go: launches the next firing if both ends want it. False if it must
  // wait.
  bool FireByGo(Posted& receive);

  // A lane of ours, or the last group, has answered the launch of a receive. `launch`: the launch
  // that the lane has answered. For an answer of groups: the default value.
  void OnReceiveDone(Posted& receive, const absl::Status& status, LaneLaunch launch = {});
  // No group carries the receive any more: it ends, or takes the next route, or waits for the rest
  // of its chunks.
  void GoOn(Posted& receive);
  // Puts no further byte of the receive into groups. The pair ends with `why` when its groups are
  // over. If they have moved nothing and `why` is ROUTE_UNAVAILABLE, the next route is tried
  // instead. Nothing happens if no groups carry the receive, or its rest was dropped before.
  void DropRest(Posted& receive, absl::Status why);
  // An end wants a receive to end that is launched already, which is too late. The receive keeps
  // `why`, and ends with it if the launch moves nothing.
  static void WishedTooLate(Posted& receive, absl::Status why);

  // --- What the source's daemon says. Each is false for a message that makes no sense.

  bool OnReady(PeerId peer, const Ready& ready);
  bool OnWithdraw(PeerId peer, Withdraw withdraw);
  bool OnSendFailed(PeerId peer, SendFailed failed);

 private:
  // The source's half of a pair as the destination sees it, wherever it was posted.
  struct SourceHalf {
    const Layout* layout;
    uint64_t bytes;
    DataType data_type;
    const Shape* shape;
    Route route;
    int32_t priority;
    bool ready;
    bool prepared;
    uint32_t slot;
  };
  SourceHalf SourceOf(const Posted& receive) const;
  // TRANSFER_MISMATCH or ROUTE_UNAVAILABLE if the two do not fit.
  static absl::Status Compare(const Posted& receive, const SourceHalf& source);
  static int32_t PriorityOf(const Posted& receive, const SourceHalf& source) {
    return receive.spec.priority != 0 ? receive.spec.priority : source.priority;
  }

  void LaunchPair(Posted& receive, Route route);
  void HandOverPair(Posted& receive);
  // Returns what fires the prepared pair that is launched now. Sends Go if the route arms at the
  // source too.
  Armed ArmPair(Posted& receive, const SourceHalf& source);
  // Nothing was moved by the route that the receive was launched on.
  void TryNextRoute(Posted& receive, const absl::Status& why);

  // The route to try next, kUnspecified if there is none.
  Route NextRoute(Posted& receive, const SourceHalf& source);
  // Whether an arena of the source was tried in vain on `mapped`, and is remembered.
  bool IsUnmapped(const MatchKey& key, const Layout& source) const;
  // ROUTE_UNAVAILABLE, which says of each route why not.
  absl::Status NoRoute(const Posted& receive, const SourceHalf& source,
                       const absl::Status& last_failure) const;

  const EngineContext& context_;
  const EngineBooks& books_;
  LaunchRules& launches_;
  HalfEnds& ends_;
  uint64_t next_tag_ = 1;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
