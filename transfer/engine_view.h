// SPDX-License-Identifier: Apache-2.0
// EngineView shows the state of a TransferEngine: what is in flight, as rows for operators, which
// offers of peers wait, who has joined which domain, which routes there are, and how much of each
// is kept. Everybody who only looks at the engine calls it (TransferEngine::view), tests and the
// simulator too. It changes nothing, owns nothing, and refuses nothing but Explain of devices that
// are not known or not ours.
//
// Home: control. Owner: TransferEngine, whose books it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/route_choice.h"
#include "transfer/transfer_row.h"
#include "transfer/types.h"

namespace ferry {

// How the engine keeps all this is its own affair: who looks includes no more than the rows.
class Cliques;
class DrainNews;
class HalfBook;
class MemberNews;
class Members;
class OfferBook;
class Tombstones;
struct EngineContext;
struct Posted;

// What the half waits for: "the receive at node-b", "its data (defined timeline 3 >= 7)".
std::string WaitsFor(const EngineContext& context, const Posted& half);

class EngineView {
 public:
  // What is read. All of it outlives the view.
  struct Books {
    const HalfBook& halves;
    const OfferBook& offers;
    const Tombstones& tombstones;
    const MemberNews& members;
    const DrainNews& drains;
    const RouteChoice& routes;
    const Cliques& cliques;
    const uint64_t& ignored_messages;
  };
  EngineView(const EngineContext& context, const Books& books) : context_(context), books_(books) {}

  // --- Transfers.

  // At most `limit` transfers, oldest first.
  std::vector<TransferRow> List(size_t limit) const;
  // Every transfer in flight, oldest first.
  void Visit(absl::FunctionRef<void(const TransferBrief&)> visit) const;
  // None: it is over, or never was.
  std::optional<TransferRow> Find(TransferId transfer) const;
  size_t in_flight() const;
  size_t in_flight(SessionId session) const;
  bool IsInFlight(TransferId transfer) const;
  // Whether the transfer is in flight, and what it continues is too.
  bool Continues(TransferId transfer) const;

  // --- Peers.

  // At most `limit` offers that wait, by peer and id.
  std::vector<WaitingOfferRow> ListOffers(size_t limit) const;
  size_t waiting_offers() const;  // of peers, unmatched
  // Members of domains, ours and what peers have told.
  const Members& members() const;
  // Until when a peer whose link is up drains, as its daemon has given TransferEngine::SetDraining;
  // none: it serves.
  std::optional<absl::Time> DrainsUntil(PeerId peer) const;
  // Whether more of the peer's messages follow in a moment (TransferEngine::OnMore).
  bool HasMore(PeerId peer) const;
  uint64_t ignored_messages() const;

  // --- Routes.

  // In the configured order. INVALID_ARGUMENT/DEVICE_UNKNOWN: no node has one of the devices, or
  // neither is ours.
  absl::StatusOr<std::vector<RouteOption>> Explain(absl::Time now, GlobalDeviceId source,
                                                   GlobalDeviceId destination,
                                                   uint64_t bytes) const;

  // --- What is bounded, and what must be nothing in the end: for tests and the simulator.

  // The unmatched offers of each peer that has any, which `offers_per_peer` bounds. Counted anew.
  absl::btree_map<PeerId, size_t> OffersHeld() const;
  // The bytes that this daemon keeps for the offers of a peer (`peer_kept_bytes`).
  uint64_t RecordBytesFor(PeerId peer) const;
  // What `tombstones_per_peer` bounds.
  size_t TombstonesHeld(PeerId peer) const;
  size_t waiting_pairs() const;  // for a group, in cliques that we lead
  size_t groups() const;         // that ask for a lane or run

 private:
  // Of the transfer at `place` of the half: 0, or a member of a convoy.
  TransferRow MakeRow(const Posted& half, size_t place) const;

  const EngineContext& context_;
  const Books books_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
