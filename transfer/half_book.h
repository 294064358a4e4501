// SPDX-License-Identifier: Apache-2.0
// HalfBook owns the record of every half that is posted at this daemon (Posted), from when the half
// is posted until it has ended. It keeps the halves in the order of posting, by session and by id;
// it knows which transfers are in a convoy, and it counts transfers. Its cursors (young, swept, the
// next half of a session that ends) stay right while halves end under them.
//
// An example. Session 3 posts a batch of ten transfers, 3/20 to 3/29, of which 3/21 to 3/28 are
// alike and go as a convoy. The book then has three records: 3/20, the convoy 3/21, and 3/29.
// Holding finds the convoy by the id 3/25, Find does not. When the convoy is taken apart, eight
// records stand in its place in the order of posting.
//
// The book refuses nothing: TransferEngine has checked what it adds.
//
// Pure: time is an argument. Home: control. Owner: TransferEngine.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/placed_list.h"
#include "transfer/posted.h"
#include "transfer/sharded_map.h"
#include "transfer/types.h"

namespace ferry {

class HalfBook {
 public:
  HalfBook() = default;
  HalfBook(const HalfBook&) = delete;
  HalfBook& operator=(const HalfBook&) = delete;

  // --- Halves come, are replaced and go.

  // The session is about to add so many transfers, as halves or in convoys. They are counted from
  // now on.
  void Expect(SessionId session, size_t transfers);
  // One of those that are expected. `peer`: the daemon of the other end.
  Posted& Add(absl::Time now, TransferId id, TransferSpec spec, PeerId peer);
  // Adds alike transfers as one convoy. The specs are moved from.
  Posted& AddConvoy(absl::Time now, TransferId first, absl::Span<TransferSpec> specs, PeerId peer);
  // Puts the members of a convoy that is not matched in its place, as halves that wait or are
  // offered as the convoy was. The convoy is destroyed afterwards. The members' ids, in order.
  std::vector<TransferId> Replace(Posted& convoy);
  // The half is over: it is in no list any more, and its transfers are counted no more.
  std::unique_ptr<Posted> Take(Posted& half);

  // --- Who is there.

  // By the id of a half, or of the first one of a convoy. Null if there is none.
  Posted* Find(TransferId id) const;
  // The half or the convoy that has this transfer. Null if there is none.
  Posted* Holding(TransferId transfer) const;
  // In the order of posting.
  Posted* first() const { return in_order_.first(); }
  static Posted* Next(const Posted& half) {
    return PlacedList<Posted, &Posted::position>::Next(half);
  }
  template <typename Wanted>
  std::vector<Posted*> Sorted(Wanted wanted) const {
    std::vector<Posted*> found;
    for (Posted* half = first(); half != nullptr; half = Next(*half)) {
      if (wanted(*half)) found.push_back(half);
    }
    return found;
  }
  bool empty() const { return in_order_.first() == nullptr; }
  size_t transfers() const { return halves_.size() + in_convoys_; }
  size_t transfers(SessionId session) const;

  // --- Cursors.

  // The oldest half that PassYoung has not passed yet. Null if it has passed all.
  Posted* young() const { return young_; }
  Posted& PassYoung() {
    home_.Check();
    return *std::exchange(young_, Next(*young_));
  }
  // A sweep goes once over all halves. `swept`: its next half; null if no sweep is under way.
  void BeginSweep() {
    home_.Check();
    swept_ = first();
  }
  Posted* swept() const { return swept_; }
  Posted& PassSwept() {
    home_.Check();
    return *std::exchange(swept_, Next(*swept_));
  }

  // The session is gone: its halves are to be ended, in the order of posting, after the
  // halves of sessions that were gone before. False if it has none.
  bool EndLater(SessionId session, absl::string_view why);
  // The next half that is to be ended so. Null if there is none.
  Posted* ToEnd();
  // Why `ToEnd` is to be ended.
  const std::string& why_to_end() const { return ending_.front().second; }
  void PassToEnd();
  bool ends_sessions() const { return !ending_.empty(); }

 private:
  struct OfSession {
    size_t transfers = 0;  // also those that are expected
    PlacedList<Posted, &Posted::position_in_session> halves;
    Posted* ending = nullptr;  // the next half to be ended, once EndLater was called
  };

  // Into the map alone.
  Posted& Insert(absl::Time posted, TransferId id, TransferSpec spec, PeerId peer);
  // Out of the lists, the convoys and from under the cursors.
  void Unlist(Posted& half);
  std::unique_ptr<Posted> Extract(TransferId id);

  ShardedMap<TransferId, std::unique_ptr<Posted>> halves_;  // a convoy by its first transfer
  PlacedList<Posted, &Posted::position> in_order_;
  absl::flat_hash_map<SessionId, OfSession> sessions_;  // those with transfers
  absl::btree_map<TransferId, Posted*> convoys_;        // by the first transfer
  size_t in_convoys_ = 0;  // transfers in convoys, without the first one of each
  Posted* young_ = nullptr;
  Posted* swept_ = nullptr;
  std::deque<std::pair<SessionId, std::string>> ending_;  // sessions that end, and why
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
