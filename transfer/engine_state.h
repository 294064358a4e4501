// SPDX-License-Identifier: Apache-2.0
// The state behind TransferEngine, private to engine*.cc: engine.cc posts and keeps the tables,
// engine_pair.cc compares and launches pairs, by the routes that they take, engine_prepared.cc has
// what only prepared ones do, engine_peer.cc talks with peers, engine_clique.cc hands transfers to
// the cliques (transfer/clique), which carry them in groups, engine_end.cc ends what is cancelled,
// late or orphaned, engine_convoy.cc makes convoys and takes them apart. What can be had without
// the engine's rules has classes of its own: HalfBook, OfferBook, MemberNews, DrainNews, LongWaits,
// RouteChoice, Tombstones, Cliques.
//
// Ownership: `halves` owns every half posted here until its Ended is out; `offers` owns every offer
// of a peer until its Done is out. A matched pair's state lives in its receive. Invariant: a record
// is in the matcher, in the deadlines or watched exactly if its flag says so, so that ending it
// leaves nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "transfer/clique/cliques.h"
#include "transfer/deadlines.h"
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
#include "transfer/tombstones.h"

namespace ferry {

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

// Of memory: what needs no staging.
inline bool InOnePiece(const Layout& layout) {
  return layout.blocks() == nullptr && layout.extents().size() == 1;
}

inline constexpr int64_t kNever = Deadlines::kNever;

struct TransferEngine::Impl {
  Impl(DeviceMap devices, Options options);

  // --- engine.cc: posting and the tables.
  std::vector<EntryError> Check(absl::Span<const TransferSpec> batch) const;
  absl::Status CheckOne(const TransferSpec& spec, const HashedKey& key) const;
  void Post(absl::Time now, SessionId session, uint64_t first_sequence,
            absl::Span<TransferSpec> batch);
  void PostOne(absl::Time now, Posted& half);
  void OnDefined(TransferId id);
  // The daemon of the transfer's other device.
  PeerId OtherEndOf(const TransferSpec& spec) const {
    return context.OwnerOf(spec.side == Side::kSend ? spec.key.destination : spec.key.source);
  }
  void SetTimer(Posted& half);
  void SetTimer(Offered& offered);
  void StopTimer(Posted& half);
  void StopTimer(Offered& offered);
  void LeaveMatcher(Posted& half);
  // The matcher has let go of it.
  void OnMatcherLeft(Posted& half);
  void StopWatching(Posted& half);
  void Want(PeerId peer);
  template <typename Message>
  void Send(PeerId peer, Message message) {
    out.messages.emplace_back(peer, std::move(message));
  }
  // The only way a posted half leaves. `half` is gone afterwards.
  void End(Posted& half, absl::Status status);
  // An offer waits no more in the matcher.
  void ForgetWaiting(Offered& offered);
  // Takes an offer out of all tables.
  void Erase(Offered& offered);

  // --- engine_pair.cc: pairs, at the destination.
  SourceHalf SourceOf(const Posted& receive) const;
  void Match(Posted& receive, Half source);
  absl::Status Compare(const Posted& receive, const SourceHalf& source) const;
  // Launches if both ends are ready. False if it must wait.
  bool Start(Posted& receive);
  static int32_t PriorityOf(const Posted& receive, const SourceHalf& source) {
    return receive.spec.priority != 0 ? receive.spec.priority : source.priority;
  }
  void LaunchPair(Posted& receive, Route route);
  // What fires a prepared pair that is launched now; the source is told to arm its half, where it
  // must.
  Armed ArmPair(Posted& receive, const SourceHalf& source);
  void OnLaunchDone(TransferId id, uint32_t attempt, const absl::Status& status);
  void OnReceiveDone(Posted& receive, const absl::Status& status);
  // Nothing was moved by the route it was launched on.
  void TryNextRoute(Posted& receive, const absl::Status& why);
  void OnSendDone(Posted& send, const absl::Status& status);
  // Aborts the outstanding launch, once. The first `why` is what will be told, if it then fails.
  void Abort(Posted& half, absl::Status why);
  // Ends a receive and, if it is matched, its source's half, with `theirs`. Both are gone
  // afterwards.
  void EndPair(Posted& receive, absl::Status ours, absl::Status theirs);
  // By which route; at the destination.
  // Whether an arena of the source was tried in vain on `mapped`, and is remembered.
  bool IsUnmapped(const MatchKey& key, const Layout& source) const;
  // The route to try next, kUnspecified if there is none.
  Route NextRoute(Posted& receive, const SourceHalf& source);
  // A receive is launched by a route, or given to the leader of its clique.
  void BeginEstimate(Posted& receive, Route route);
  // Tells the route's estimate how the groups of a receive went.
  void EndEstimate(Posted& receive, bool moved);
  absl::Status NoRoute(const Posted& receive, const SourceHalf& source,
                       const absl::Status& last_failure) const;

  // --- engine_prepared.cc: what is fired again and again.
  void ReturnSlot(Posted& send);
  // ucx: the half waits for its next firing.
  void AwaitFiring(Posted& half);
  void OnWanted(Posted& half);
  // Launches the next firing if both ends want it. False if it must wait.
  bool FireByGo(Posted& receive);
  void CountFiring(Posted& half);
  // ucx: a launch is over, but not the half.
  void FiringOver(Posted& half);
  // Aborts an armed pair, which ends it.
  void Disarm(Posted& receive, absl::Status ours, absl::Status theirs);
  void EndBatches();

  // --- engine_peer.cc: messages, and peers that come and leave.
  PeerId AddPeer(const std::string& name, absl::Span<const GlobalDeviceId> node_devices);
  void RemovePeer(PeerId peer, const absl::Status& why);
  absl::Status LeftStatus(const Posted& half) const;
  void OnPeerUp(absl::Time now, PeerId peer, RouteTable routes, PeerFeatures features,
                absl::flat_hash_set<GlobalDeviceId> gpus);
  void OnPeerLost(PeerId peer, const absl::Status& why, bool established);
  void OnMessage(absl::Time now, PeerId peer, PeerMessage&& message);
  void SendOffer(absl::Time now, Posted& send);
  // Each is false for a message that makes no sense.
  bool OnOffer(absl::Time now, PeerId peer, Offer&& offer);
  // Keeps an offer that is in the matcher, or answers it.
  void LetWait(absl::Time now, Offered& offered);
  // The end of an offer that is not in the matcher. It is gone afterwards.
  void Answer(Offered& offered, absl::Status why);
  // Why an offer is answered before it is kept; OK if it is not. Takes the tombstone of its key.
  absl::Status RefusalOf(absl::Time now, PeerId peer, const Offer& offer);
  // This daemon drains: the offers that no receive may be posted for are answered.
  void RefuseOffers();
  // Ends the receives that the peer, which drains, will have no send for.
  bool OnDraining(PeerId peer, const Draining& message);
  bool OnReady(PeerId peer, const Ready& ready);
  bool OnWithdraw(PeerId peer, Withdraw withdraw);
  bool OnSendFailed(PeerId peer, SendFailed failed);
  bool OnMatched(PeerId peer, const Matched& matched);
  bool OnGo(PeerId peer, Go go);
  bool OnDone(PeerId peer, Done done);
  void LaunchSend(Posted& send, const Go& go);
  // Nobody receives any more what a send's outstanding launch sends. No reason why the send should
  // fail, so not an Abort: a later launch would tell it.
  void StopLaunch(Posted& send);
  Posted* FindSendTo(PeerId peer, TransferId id) const;

  // --- engine_clique.cc: what transfers, prepared ones too, have to do with groups.
  void HandOverPair(Posted& receive);
  bool OnHandOver(PeerId peer, const HandOver& message);
  bool OnTakeBack(PeerId peer, const TakeBack& message);
  // A load for groups, of a half that has none.
  static Load MakeLoad(const Posted& half);
  // Of our half of a transfer, if it may be in a group of this clique: see Cliques::FindLoad.
  Load* LoadOf(PeerId peer, const Clique& clique, const PairName& name, bool receives);
  // What is in no group yet shall not be, and the pair ends with `why` when the groups that carry
  // it are over.
  void DropRest(Posted& receive, absl::Status why);
  // Goes on with a half when no group carries it any more.
  void Settle(TransferId id);
  // Handles what the cliques have to tell. `left`: gets the halves that are to be settled instead.
  void OnCliqueEvents(std::vector<TransferId>* left = nullptr);
  void OnGroupDone(uint64_t id, const absl::Status& status, std::vector<TransferId>* left);
  // The name of a bundle, alike at both ends: by the destination's batch and the source's slot.
  static PairName BundleName(const Posted& half, TransferId batch, uint32_t slot);
  // The half is in the bundle of this name, which its end alone ends.
  bool MayJoinBundle(const Posted& send, TransferId batch) const;
  Bundle& JoinBundle(Posted& half, TransferId batch, uint32_t slot);
  // Orders the abort of a half's launch; of a bundle's as soon as no group carries it.
  void OrderAbort(Posted& half, absl::Status why);
  // The same with a bundle.
  void SettleBundle(uint64_t number);
  // Ends what is in a bundle, or lets it take another route if nothing was fired and there is no
  // communicator.
  void FailBundle(uint64_t number, const absl::Status& why);
  void OnCliqueUnavailable(const Clique& clique, const absl::Status& why);

  // --- engine_convoy.cc: alike halves of a batch that are carried as one. All is by the convoy's
  // id, but for what is named a member's. A convoy is taken apart only while it is not matched.
  // Of the transfers of a batch that are not posted yet: how many are posted next, and whether as
  // one convoy.
  struct NextOfBatch {
    size_t count = 1;
    bool as_convoy = false;
  };
  NextOfBatch NextOf(absl::Span<const TransferSpec> specs) const;
  // Of transfers that are alike enough for one.
  bool MayBeConvoy(absl::Span<const TransferSpec> specs) const;
  // Between the key's devices no convoy is made for so long.
  void PauseConvoys(const MatchKey& key, absl::Duration pause);
  // `first`: the id of the first one. Takes what the specs hold.
  void PostConvoy(absl::Time now, TransferId first, absl::Span<TransferSpec> specs);
  // Puts its members in its place, each in its stage, in no other table yet. It is gone afterwards.
  std::vector<TransferId> Replace(Posted& convoy);
  // The same, and they wait as it did.
  void TakeApart(Posted& convoy);
  // Posts its members one by one instead. It is gone afterwards.
  void PostApart(absl::Time now, Posted& convoy);
  // The same of whatever waits in the matcher.
  void TakeApart(const Half& waiting);
  // At the destination: its members are offers of their own. It is gone afterwards.
  void TakeApart(Offered& convoy);
  // Whether an offer that says that it is a convoy's can be one.
  static bool IsConvoy(const Offer& offer);
  // Whether all of its members would be kept: else each is seen by itself.
  bool MayKeepConvoy(PeerId peer, const Offer& convoy) const;
  // As OnOffer of each of its members. True.
  bool OfferApart(absl::Time now, PeerId peer, Offer&& convoy);
  // Of one that is not in the matcher: out of the tables, with what is left of its deadline.
  Offer TakeOffer(Offered& offered);
  // Takes apart a convoy that is not matched: now, or when the peer that it is offered to says so.
  // `member` none: all are cancelled with `why`; OK: none is.
  void SplitUp(Posted& convoy, TransferId member = TransferId(),
               absl::Status why = absl::OkStatus());
  void TakeApartAndCancel(Posted& convoy);
  // A convoy that is matched goes or ends as one: it is cancelled when all of its members are.
  void CancelMember(Posted& convoy, TransferId member, absl::Status why);
  static void RememberCancel(Convoy& convoy, TransferId member, absl::Status why);
  // Why all of its members are to end: each is cancelled, or the deadline is over. Else OK.
  static absl::Status WantedEnd(const Posted& convoy);
  bool OnSplit(PeerId peer, Split split);
  bool OnApart(PeerId peer, const Apart& apart);

  // --- engine_end.cc: what ends early.
  void CancelHalf(Posted& half, absl::Status why);
  // An end wants a receive out that is launched already: it is told if nothing was moved.
  static void WishedTooLate(Posted& receive, absl::Status why);
  // Ends a half that is not launched, with the pair if there is one. A send that was offered is
  // withdrawn, and ends when the peer answers.
  void EndBeforeLaunch(Posted& half, absl::Status why);
  void EndSession(SessionId session, absl::string_view why);
  // Goes on with sessions that end, at most `most` halves.
  void EndSome(size_t most);
  // An unmatched half, which is out of the matcher, has ended with `why`: a partner that is posted
  // later is told, if it is the half's own doing.
  void LeaveTombstone(Side side, PeerId peer, const MatchKey& key, const absl::Status& why);
  // Ends a half that is being posted if its partner has ended before. Of a receive whose partner
  // was a peer's it asks the peer first: its answer comes after the offer of a successor that was
  // posted there before. True if the half is gone.
  bool TellOfTombstone(Posted& half, const HashedKey& key);
  // What that partner is told; whoever tells it adds the place.
  absl::Status EndOf(const Tombstones::Tombstone& tombstone) const;
  // `why` of one half as its other half, if that is ours too, is told. A peer adds the place
  // itself.
  absl::Status ForOther(const Posted& half, const absl::Status& why) const;
  // Ends a half that waits for its other half, if nobody is left who could post that. True if the
  // half is on its way out.
  bool EndIfDeserted(Posted& half);
  // Goes over what waits, at most `most` halves at a time, once a place was deserted.
  void SweepDeserted(size_t most);
  absl::Time NextSweep() const {
    return halves.swept() != nullptr ? absl::InfinitePast() : members.NextSweep();
  }
  void OnTime(absl::Time now);
  void OnLooks(size_t most);
  // An unmatched half is over at its deadline. A receive from a peer asks it first what there is
  // instead (Seek), and waits for the answer for a moment.
  void EndAlone(Posted& half, absl::Status why);
  bool OnSought(PeerId peer, Sought sought);
  // A receive that has asked is over. `theirs`: the answer.
  void EndAsked(Posted& receive, std::optional<NearTexts> theirs);
  void OnDeadline(Posted& half);
  absl::Status DeadlineStatus(const Posted& half) const;
  absl::Status ExecutingStatus(const Posted& half) const;
  absl::Status UnreachableStatus(const Posted& half, const absl::Status& why) const;

  DeviceMap devices;
  DeviceOwners owners{devices.owner};  // the same, and who had what before
  Options options;                     // constant but for what SetBounds sets
  RouteChoice routes;
  TransferMatcher matcher;
  HalfBook halves;
  OfferBook offers;
  // Until when no convoy is made between two devices: after their clients cut batches differently,
  // and after the launch of a convoy was refused.
  absl::flat_hash_map<Clique, absl::Time> no_convoys_until;
  // Of what is posted here as our own, else as the peer's whose offer it is.
  Deadlines deadlines;
  // Receives that have sent a Seek when they were posted, and wait: what they are told if it brings
  // no successor.
  absl::flat_hash_map<TransferId, absl::Status> to_tell;
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
  // Prepared batches of which a transfer has ended: why, and how many they are.
  absl::btree_map<TransferId, std::pair<uint32_t, absl::Status>> ended_batches;
  uint64_t next_tag = 1;
  uint64_t ignored = 0;
};

}  // namespace ferry
