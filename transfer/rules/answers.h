// SPDX-License-Identifier: Apache-2.0
// Answers passes on what lanes and groups answer to the rules of the half that they answer for, and
// says to the cliques what groups may carry of a half.
//
// Home: control. Owner: TransferEngine.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/clique/cliques.h"
#include "transfer/engine_context.h"
#include "transfer/half_book.h"
#include "transfer/offer_book.h"
#include "transfer/posted.h"
#include "transfer/rules/destination_rules.h"
#include "transfer/rules/half_ends.h"
#include "transfer/rules/half_tables.h"
#include "transfer/rules/launch_rules.h"
#include "transfer/rules/source_rules.h"

namespace ferry {

class Answers {
 public:
  // What the rules read and change besides the halves that they are called with.
  struct Books {
    HalfBook& halves;
    OfferBook& offers;
    HalfTables& tables;
    Cliques& cliques;
  };
  Answers(const EngineContext& context, const Books& books, LaunchRules& launches, HalfEnds& ends,
          DestinationRules& destination, SourceRules& source)
      : context_(context),
        books_(books),
        launches_(launches),
        ends_(ends),
        destination_(destination),
        source_(source) {}

  // The launch at a lane is over. Ignored if it is not the last launch of that half.
  void OnLaunchDone(TransferId id, uint32_t attempt, const absl::Status& status);
  // A group at a lane is over. `left`: if not null, the ids of the halves that no group carries any
  // more are appended, and the caller calls GoOn for them.
  void OnGroupDone(uint64_t group, const absl::Status& status, std::vector<TransferId>* left);
  // Handles what the cliques have to tell. `left` as above.
  void OnCliqueEvents(std::vector<TransferId>* left = nullptr);
  // Goes on with a half when no group carries it any more.
  void GoOn(TransferId id);

  // Our half of a transfer, if it may be in a group of this clique: see Cliques::FindLoad.
  Load* LoadOf(PeerId peer, const Clique& clique, const PairName& name, bool receives);

 private:
  void OnPinned(TransferId id);
  void OnCliqueUnavailable(const Clique& clique, const absl::Status& why);
  // No group carries a firing of the bundle any more.
  void SettleBundle(uint64_t number);
  // Ends what is in a bundle, or lets it take another route if nothing was fired and there is no
  // communicator.
  void FailBundle(uint64_t number, const absl::Status& why);

  const EngineContext& context_;
  const Books books_;
  LaunchRules& launches_;
  HalfEnds& ends_;
  DestinationRules& destination_;
  SourceRules& source_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
