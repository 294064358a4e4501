// SPDX-License-Identifier: Apache-2.0
// LaunchRules does what both ends of a pair do alike: it aborts a launch, makes its Load, lets a
// half join its bundle, and counts firings. It also reports the time of a receive's launch to the
// route's estimate. Who launches what, and when, say DestinationRules and SourceRules.
//
// Refuses nothing: whoever calls has checked that the half is in a state for it. Owns nothing:
// halves are HalfBook's, loads the halves', bundles BundleBook's.
//
// Home: control. Owner: TransferEngine; the other rules call.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/clique/cliques.h"
#include "transfer/engine_context.h"
#include "transfer/posted.h"
#include "transfer/route_choice.h"
#include "transfer/rules/half_tables.h"

namespace ferry {

class LaunchRules {
 public:
  // What the rules read and change besides the halves that they are called with.
  struct Books {
    HalfTables& tables;
    RouteChoice& routes;
    Cliques& cliques;
  };
  LaunchRules(const EngineContext& context, const Books& books)
      : context_(context), books_(books) {}

  // Aborts the launch at a lane, if there is one, once. The first `why` is what is told if the
  // launch then fails.
  void Abort(Posted& half, absl::Status why);
  // Aborts an armed pair, which ends it: the receive with `ours`, the send with `theirs`.
  void Disarm(Posted& receive, absl::Status ours, absl::Status theirs);
  // Stops the launch at a lane of a send whose bytes nobody receives any more, because the
  // destination tries another launch; nothing if groups carry it. Unlike Abort it keeps no status:
  // the send would tell it if the next launch failed.
  void StopLaunch(Posted& send);

  // A receive is launched by a route, or given to the leader of its clique.
  void BeginEstimate(Posted& receive, Route route);
  // Tells the route's estimate how the launch of a receive went.
  void EndEstimate(Posted& receive, bool moved);

  // --- Firings. On a route that is fired by Go (ucx) each is an ordinary launch.

  // The half waits for its next firing.
  void AwaitFiring(Posted& half);
  void CountFiring(Posted& half);
  // The launch of a firing is over, but not the half.
  void FiringOver(Posted& half);

  // --- Groups, and bundles: prepared transfers of the same two batches on nccl.

  // What groups carry of a half that has no load yet.
  static Load MakeLoad(const Posted& half);
  // Whether the send, which is in no bundle, may join the bundle of the destination's batch
  // `batch`: BundleBook::MayJoin.
  bool MayJoinBundle(const Posted& send, TransferId batch) const;
  // `batch`: the destination's batch; `slot`: the source's. They name the bundle at both ends.
  Bundle& JoinBundle(Posted& half, TransferId batch, uint32_t slot);

 private:
  // Orders the abort of a half's launch; of a bundle's as soon as no group carries it.
  void OrderAbort(Posted& half, absl::Status why);
  static PairName BundleName(const Posted& half, TransferId batch, uint32_t slot);

  const EngineContext& context_;
  const Books books_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
