// SPDX-License-Identifier: Apache-2.0
// What DestinationRules and ConvoyRules read and change, which is nearly all there is. The other
// rules name the few books that they have (their Books). TransferEngine owns all of it, and all of
// it outlives the rules. Plain data. Home: control.
#pragma once

#include "transfer/clique/cliques.h"
#include "transfer/convoy_pauses.h"
#include "transfer/engine_options.h"
#include "transfer/half_book.h"
#include "transfer/long_waits.h"
#include "transfer/matcher.h"
#include "transfer/offer_book.h"
#include "transfer/route_choice.h"
#include "transfer/rules/half_tables.h"
#include "transfer/tombstones.h"

namespace ferry {

struct EngineBooks {
  const EngineOptions& options;
  HalfBook& halves;   // every half posted here, until its Ended is out
  OfferBook& offers;  // every offer of a peer, until its Done is out
  TransferMatcher& matcher;
  HalfTables& tables;
  Tombstones& tombstones;
  LongWaits& long_waits;
  ConvoyPauses& convoy_pauses;
  RouteChoice& routes;
  Cliques& cliques;
};

}  // namespace ferry
