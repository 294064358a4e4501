// SPDX-License-Identifier: Apache-2.0
// OfferBook keeps the offers of peers: each send that a peer has offered to a device of ours, until
// its Done is out. It counts what they take: how many of a peer wait for their receive, with a
// share for each of its users and sessions (OfferShares), and how many bytes the daemon keeps for
// all of a peer's (RecordBytes). It refuses what is over either bound, and says when there will be
// room.
//
// Pure: time is an argument. Home: control. Owner: TransferEngine, which also keeps which of the
// offers are in the matcher, in the deadlines and among the near misses, by flags in their records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/reason.h"
#include "transfer/offer_shares.h"
#include "transfer/peer_message.h"
#include "transfer/placed_list.h"
#include "transfer/record_bytes.h"

namespace ferry {

// The source runs the deadline of its send; so much later the offer is over here, for a source that
// forgot.
inline constexpr absl::Duration kOfferGrace = absl::Seconds(1);

// A send offered by a peer.
struct Offered {
  ListPosition<Offered> position;  // among the offers that wait
  PeerId peer;
  Offer offer;
  absl::Time came;             // since when it waits
  int64_t deadline_nanos = 0;  // Unix nanoseconds; with kOfferGrace
  bool in_matcher = false;     // it waits for its receive
  bool searchable = false;     // it is in the near misses
  bool timed = false;          // it has an entry in the deadlines
  TransferId receive;          // our receive, once matched
  uint64_t record_bytes = 0;   // bytes that are counted for it

  uint32_t count() const { return offer.key.count; }
};

// A status about this offer, which begins with its name.
absl::Status OfferError(const Offer& offer, absl::StatusCode code, Reason reason,
                        absl::string_view cause);

class OfferBook {
 public:
  struct Bounds {
    size_t offers_per_peer = 0;    // `limits.offers_per_peer`
    uint64_t peer_kept_bytes = 0;  // `limits.peer_kept_bytes`
  };
  OfferBook(const Bounds& bounds, size_t peers);
  OfferBook(const OfferBook&) = delete;
  OfferBook& operator=(const OfferBook&) = delete;

  // From now on. What is beyond a smaller bound stays, and nothing is added to it.
  void SetBounds(const Bounds& bounds);
  void AddPeer();  // the next PeerId

  Offered* Find(PeerId peer, TransferId transfer) const;  // null: it is over, or never was
  // In no order.
  std::vector<Offered*> Of(PeerId peer) const;
  std::vector<Offered*> Waiting() const;

  // RESOURCE_EXHAUSTED/QUEUE_FULL if the bytes that are kept for an offer do not fit its peer's.
  absl::Status RoomFor(absl::Time now, PeerId peer, const Offer& offer,
                       absl::string_view node) const;
  // Keeps an offer that there is room for. Null if the peer has one of this id here.
  Offered* Add(absl::Time now, PeerId peer, Offer&& offer);
  // The offer is over. It waits no more, and is destroyed afterwards.
  void Erase(absl::Time now, Offered& offered);

  // Whether the offer, or all transfers of a convoy's, may wait for their receives: a bound on
  // their number, where RoomFor() has bounded their bytes.
  bool MayWait(PeerId peer, const Offer& offer) const;
  // RESOURCE_EXHAUSTED/QUEUE_FULL: why it may not.
  absl::Status WhyNotWait(absl::Time now, const Offered& offered, absl::string_view node) const;
  // The offer waits from now on. It must be one that may (MayWait).
  void Wait(absl::Time now, Offered& offered);
  void WaitNoMore(absl::Time now, Offered& offered);

  // The offers that wait, in the order in which they came; and the first one of them that
  // PassYoung has not passed yet.
  Offered* first_waiting() const { return waiting_.first(); }
  static Offered* NextWaiting(const Offered& offered) {
    return PlacedList<Offered, &Offered::position>::Next(offered);
  }
  const Offered* young() const { return young_; }
  Offered& PassYoung() {
    home_.Check();
    return *std::exchange(young_, NextWaiting(*young_));
  }
  size_t waiting() const { return waiting_transfers_; }
  uint64_t record_bytes(PeerId peer) const { return peers_[peer.value()].records.bytes(); }

 private:
  struct OfPeer {
    explicit OfPeer(uint64_t most) : records(most) {}
    OfferShares waiting;
    RecordBytes records;
  };
  // Counts `bytes` for an offer, instead of what was counted for it.
  void Keep(absl::Time now, Offered& offered, uint64_t bytes);

  Bounds bounds_;
  std::deque<OfPeer> peers_;  // by PeerId
  absl::flat_hash_map<std::pair<PeerId, TransferId>, std::unique_ptr<Offered>> offers_;
  PlacedList<Offered, &Offered::position> waiting_;
  Offered* young_ = nullptr;
  size_t waiting_transfers_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
