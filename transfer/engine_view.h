// SPDX-License-Identifier: Apache-2.0
// EngineView shows what is in flight: rows for operators, and the words for what a half waits for.
// It changes nothing.
//
// Home: control. Owner: TransferEngine, whose books it reads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "base/home.h"
#include "transfer/engine_context.h"
#include "transfer/half_book.h"
#include "transfer/offer_book.h"
#include "transfer/transfer_row.h"

namespace ferry {

class EngineView {
 public:
  EngineView(const EngineContext& context, const HalfBook& halves, const OfferBook& offers)
      : context_(context), halves_(halves), offers_(offers) {}

  // "the receive at node-b", "its data (defined timeline 3 >= 7)".
  std::string WaitsFor(const Posted& half) const;
  // At most `limit` transfers, oldest first.
  std::vector<TransferRow> List(size_t limit) const;
  // Every transfer in flight, oldest first.
  void Visit(absl::FunctionRef<void(const TransferBrief&)> visit) const;
  // None: it is over, or never was.
  std::optional<TransferRow> Find(TransferId transfer) const;
  // At most `limit` offers that wait, by peer and id.
  std::vector<WaitingOfferRow> ListOffers(size_t limit) const;
  // How many offers of each peer wait, of whom there is any. Counted anew, for tests.
  absl::btree_map<PeerId, size_t> OffersHeld() const;

 private:
  // Of the transfer at `place` of the half: 0, or a member of a convoy.
  TransferRow MakeRow(const Posted& half, size_t place) const;

  const EngineContext& context_;
  const HalfBook& halves_;
  const OfferBook& offers_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
