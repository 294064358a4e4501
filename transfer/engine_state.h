// SPDX-License-Identifier: Apache-2.0
// The state behind TransferEngine, private to engine*.cc: the books, and the rules that read and
// change them. engine.cc posts, engine_peer.cc has peers and their messages; all else that becomes
// of a transfer say the rules (transfer/rules):
//
//   HalfTables        which tables a half or an offer is in
//   LaunchRules       what is the same of a launch at either end
//   HalfEnds          the only way by which a half leaves
//   DestinationRules  a pair, at the destination, which decides
//   SourceRules       a send to a peer, at the source, which obeys
//   Answers           what lanes and groups answer, and to whose rules that goes
//   ConvoyRules       what goes as one, and is taken apart
//   EarlyEnds         cancel, a client's death, a deadline
//   OfferRules        which offers of peers are kept, and which are answered
//
// Each calls only those above it, but for the hooks of ConvoyRules and of the books.
//
// Apart from transfer/engine.h, so that who calls the engine knows nothing of halves
// (docs/decisions/2026-11-28-the-engine-keeps-its-facade.md).
//
// Ownership: `halves` owns every half posted here until its Ended is out; `offers` owns every offer
// of a peer until its Done is out. A matched pair's state lives in its receive.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "transfer/clique/cliques.h"
#include "transfer/convoy_pauses.h"
#include "transfer/device_owners.h"
#include "transfer/drain_news.h"
#include "transfer/engine.h"
#include "transfer/engine_context.h"
#include "transfer/engine_view.h"
#include "transfer/half_book.h"
#include "transfer/long_waits.h"
#include "transfer/matcher.h"
#include "transfer/member_news.h"
#include "transfer/offer_book.h"
#include "transfer/peer_state.h"
#include "transfer/posted.h"
#include "transfer/route_choice.h"
#include "transfer/rules/answers.h"
#include "transfer/rules/convoy_rules.h"
#include "transfer/rules/destination_rules.h"
#include "transfer/rules/early_ends.h"
#include "transfer/rules/engine_books.h"
#include "transfer/rules/half_ends.h"
#include "transfer/rules/half_tables.h"
#include "transfer/rules/launch_rules.h"
#include "transfer/rules/offer_rules.h"
#include "transfer/rules/source_rules.h"
#include "transfer/tombstones.h"

namespace ferry {

struct TransferEngine::Impl {
  Impl(DeviceMap devices, Options options);

  // --- engine.cc: posting.

  absl::Status CheckOne(const TransferSpec& spec, const HashedKey& key) const;
  void PostOne(absl::Time now, Posted& half);
  // A prepared half on ucx: our word allows the next firing.
  void OnWanted(Posted& half);
  // A link to the peer is needed.
  void Want(PeerId peer);

  // --- engine_peer.cc: peers.

  void OnPeerLost(PeerId peer, const absl::Status& why, bool established);
  // Ends the receives that the peer, which drains, will have no send for.
  bool OnDraining(PeerId peer, const Draining& message);

  DeviceMap devices;
  DeviceOwners owners{devices.owner};  // the same, and who had what before
  Options options;                     // constant but for its bounds
  RouteChoice routes;
  TransferMatcher matcher;
  HalfBook halves;
  OfferBook offers;
  ConvoyPauses convoy_pauses;
  std::deque<Peer> peers;  // by PeerId; they stay where they are
  Tombstones tombstones;
  absl::Time clock = absl::InfinitePast();  // of the last call
  Outbox out;
  EngineContext context;
  MemberNews members;
  DrainNews drains;
  LongWaits long_waits;
  CliqueContext clique_context;
  Cliques cliques;
  HalfTables tables;
  EngineBooks books;
  LaunchRules launches;
  HalfEnds ends;
  DestinationRules destination;
  SourceRules source;
  Answers answers;
  ConvoyRules convoys;
  EarlyEnds early;
  OfferRules offer_rules;
  uint64_t ignored = 0;  // messages that made no sense
  EngineView view;
};

}  // namespace ferry
