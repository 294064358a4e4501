// SPDX-License-Identifier: Apache-2.0
// GroupCutter gathers the pairs of one clique and cuts groups of them. Pure: time is an argument.
// Home: control. Owner: GroupLeader.
//
// A group takes whole small transfers first (up to `chunk_bytes` each), then chunks of large ones.
// A FairQueue orders each kind, so that the sessions of the senders share. Every group has place
// for one chunk of a large transfer, so that small ones cannot starve it. A group has one chunk of
// a pair.
//
// Two bounds. A group that has anything but chunks of large `unstaged` transfers has at most
// `group_bytes`: what is staged must fit staging memory, and a small transfer must not be under way
// for long. A group of chunks of large `unstaged` transfers alone has at most as many bytes as the
// caller of Cut says (`room`), if that is more.
//
// Firings of bundles have groups of their own, in turn with groups of all others: several in one if
// they are whole and have no more than `group_bytes` together, or a quarter of `room`, if that is
// more, all of them are `unstaged` and no small transfer waits. Longer groups would hold up whoever
// computes on the first firing.
//
// Invariant: every byte of an added pair is cut exactly once, in ascending order, unless the pair
// is removed; a pair of zero bytes is cut once too.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/group.h"
#include "transfer/fair_queue.h"

namespace ferry {

class GroupCutter {
 public:
  struct Options {
    // A group is full, and needs not wait for company, by any of these.
    uint64_t group_bytes = uint64_t{64} << 20;  // what staging has place for
    size_t group_chunks = kMaxGroupChunks;
    absl::Duration age = absl::Milliseconds(2);
    // Transfers beyond this travel in chunks.
    uint64_t chunk_bytes = uint64_t{8} << 20;
    // The least bytes of each transfer of an `unstaged` bundle: not less than kPackBelow, so that
    // nothing of it is packed. On average its transfers have at least `chunk_bytes`, so that a
    // group has few operations: NCCL takes 5 us for each.
    uint64_t direct_bytes = uint64_t{1} << 20;
  };

  // A group has place for two chunks at least.
  explicit GroupCutter(const Options& options);

  // False if the pair is here already. `unstaged`: the transfer is in one piece of memory at both
  // ends, so that its large chunks need no staging.
  bool Add(absl::Time now, const PairName& pair, uint64_t bytes, int32_t priority,
           bool unstaged = false);
  // Takes out what is left of a pair. False if nothing is.
  bool Remove(const PairName& pair);
  void Clear();

  bool empty() const { return index_.empty(); }
  size_t size() const { return index_.size(); }
  // Whether the next group would be full by bytes or count.
  bool Full() const;
  // When the oldest has waited for `age`; InfiniteFuture if nothing waits.
  absl::Time DueAt() const;

  // The next group; empty only if nothing waits. `room`: the most bytes of a group of large
  // `unstaged` transfers alone; it counts if it is more than `group_bytes`. What waits is cut into
  // groups of the same number of bytes, to each of which at most two chunks are added.
  std::vector<Chunk> Cut(uint64_t room = 0);

 private:
  struct Waiting : FairQueue::Item {
    Waiting(const PairName& pair, int32_t priority, uint64_t bytes, bool unstaged)
        : Item(SenderOf(pair), priority, bytes), pair(pair), unstaged(unstaged) {}
    // Sessions of the two daemons of a clique may have the same number.
    static uint64_t SenderOf(const PairName& pair) {
      return uint64_t{pair.to_low} << 32 | SessionOf(pair.transfer).value();
    }
    const PairName pair;
    const bool unstaged;
    uint64_t offset = 0;
    size_t place = 0;  // of its chunk in the group that it was last cut for
  };

  FairQueue& QueueOf(const PairName& pair, uint64_t bytes) {
    return pair.slot != 0 ? firings_ : bytes > options_.chunk_bytes ? large_ : small_;
  }
  // Cuts `bytes` from the queue's next item.
  void Take(FairQueue& queue, uint64_t bytes, std::vector<Chunk>& chunks);
  // The size of the next group, if `bytes` go in groups of equal size, of at most `room` or a chunk
  // more.
  uint64_t Evenly(uint64_t bytes, uint64_t room) const;
  void CutFirings(uint64_t room, std::vector<Chunk>& chunks);
  void CutOthers(uint64_t room, std::vector<Chunk>& chunks);

  const Options options_;
  absl::flat_hash_map<PairName, std::unique_ptr<Waiting>> index_;
  FairQueue small_;
  FairQueue large_;
  FairQueue firings_;
  bool was_firing_ = false;                    // the last group
  uint64_t bytes_ = 0;                         // that wait
  absl::Time since_ = absl::InfiniteFuture();  // no pair here has waited longer
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
