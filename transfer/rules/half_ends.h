// SPDX-License-Identifier: Apache-2.0
// HalfEnds ends halves and pairs, each exactly once. There is no other way by which a posted half
// leaves.
//
// Home: control. Owner: TransferEngine; the other rules call.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/clique/cliques.h"
#include "transfer/engine_context.h"
#include "transfer/half_book.h"
#include "transfer/long_waits.h"
#include "transfer/posted.h"
#include "transfer/rules/half_tables.h"
#include "transfer/rules/launch_rules.h"

namespace ferry {

class HalfEnds {
 public:
  // What the rules read and change besides the halves that they are called with.
  struct Books {
    HalfBook& halves;
    HalfTables& tables;
    LongWaits& long_waits;
    Cliques& cliques;
  };
  HalfEnds(const EngineContext& context, const Books& books, LaunchRules& launches)
      : context_(context), books_(books), launches_(launches) {}

  // The half is in no table any more, and its end is told. It is destroyed afterwards.
  void End(Posted& half, absl::Status status);
  // Ends a receive and, if it is matched, its source's half, with `theirs`. Both are destroyed
  // afterwards.
  void EndPair(Posted& receive, absl::Status ours, absl::Status theirs);
  // Ends a half that has only waited for its launch to be answered. False if it is no such half.
  bool EndIfLeaving(Posted& half);

  // The status to give the partner if `half` ends with `why`. Adds where the failure was if the
  // partner is posted here; a peer adds it on its side.
  absl::Status ForOther(const Posted& half, const absl::Status& why) const;

  // A prepared batch of which a transfer has ended: all others of it end too.
  struct EndedBatch {
    TransferId first;
    uint32_t size = 0;  // transfers
    absl::Status why;
  };
  // Takes out the next batch of which a transfer has ended; nothing if no such batch is left.
  std::optional<EndedBatch> TakeEndedBatch();

 private:
  const EngineContext& context_;
  const Books books_;
  LaunchRules& launches_;
  absl::btree_map<TransferId, EndedBatch> ended_batches_;  // by the first transfer
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
