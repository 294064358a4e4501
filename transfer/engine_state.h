// SPDX-License-Identifier: Apache-2.0
// The state behind TransferEngine, private to engine*.cc: the books, and the rules that read and
// change them. engine.cc posts, engine_peer.cc has peers, their messages and offers; all else that
// becomes of a transfer say the rules (transfer/rules):
//
//   HalfTables        which tables a half or an offer is in
//   LaunchRules       what is the same of a launch at either end
//   HalfEnds          the only way by which a half leaves
//   DestinationRules  a pair, at the destination, which decides
//   SourceRules       a send to a peer, at the source, which obeys
//   Answers           what lanes and groups answer, and to whose rules that goes
//   ConvoyRules       what goes as one, and is taken apart
//   EarlyEnds         cancel, a client's death, a deadline
//
// Each calls only those above it, but for the hooks of ConvoyRules and of the books.
//
// Ownership: `halves` owns every half posted here until its Ended is out; `offers` owns every offer
// of a peer until its Done is out. A matched pair's state lives in its receive.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "transfer/clique/cliques.h"
#include "transfer/convoy_pauses.h"
#include "transfer/device_owners.h"
#include "transfer/drain_news.h"
#include "transfer/engine.h"
#include "transfer/engine_context.h"
#include "transfer/engine_view.h"
#include "transfer/half_book.h"
#include "transfer/long_waits.h"
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
#include "transfer/rules/source_rules.h"
#include "transfer/tombstones.h"

namespace ferry {

struct TransferEngine::Impl {
  Impl(DeviceMap devices, Options options);

  // --- engine.cc: posting.

  std::vector<EntryError> Check(absl::Span<const TransferSpec> batch) const;
  absl::Status CheckOne(const TransferSpec& spec, const HashedKey& key) const;
  void Post(absl::Time now, SessionId session, uint64_t first_sequence,
            absl::Span<TransferSpec> batch);
  void PostOne(absl::Time now, Posted& half);
  // A word that the half's daemon watches is reached.
  void OnDefined(TransferId id);
  // The same of a prepared half on ucx: our word allows the next firing.
  void OnWanted(Posted& half);
  // A link to the peer is needed.
  void Want(PeerId peer);

  // --- engine_peer.cc: peers that come and leave, and their messages.

  PeerId AddPeer(const std::string& name, absl::Span<const GlobalDeviceId> node_devices);
  void RemovePeer(PeerId peer, const absl::Status& why);
  void OnPeerUp(absl::Time now, PeerId peer, RouteTable routes,
                absl::flat_hash_set<GlobalDeviceId> gpus);
  void OnPeerLost(PeerId peer, const absl::Status& why, bool established);
  void OnMessage(absl::Time now, PeerId peer, PeerMessage&& message);

  // --- engine_peer.cc: offers of peers.

  // False for an offer that makes no sense.
  bool OnOffer(absl::Time now, PeerId peer, Offer&& offer);
  // Keeps an offer that is in the matcher, or answers it.
  void LetWait(absl::Time now, Offered& offered);
  // The end of an offer that is not in the matcher. It is destroyed afterwards.
  void Answer(Offered& offered, absl::Status why);
  // Why an offer is answered before it is kept; OK if it is not. Takes the tombstone of its key.
  absl::Status RefusalOf(absl::Time now, PeerId peer, const Offer& offer);
  // This daemon drains: the offers that no receive may be posted for are answered.
  void RefuseOffers();
  // Ends the receives that the peer, which drains, will have no send for.
  bool OnDraining(PeerId peer, const Draining& message);

  DeviceMap devices;
  DeviceOwners owners{devices.owner};  // the same, and who had what before
  Options options;                     // constant but for what SetBounds sets
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
  EngineView view;
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
  uint64_t ignored = 0;  // messages that made no sense
};

}  // namespace ferry
