// SPDX-License-Identifier: Apache-2.0
// One end of a measurement; sender and receiver run the same code. Owns a session, an arena, and
// what it has posted and prepared in it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/ferryctl/client.h"

namespace ferry::tools {

int64_t MonotonicNanoseconds();

// `key` as 8 bytes, big-endian, like the keys of PJRT.
std::string NumberKey(uint64_t key);

class BenchEnd {
 public:
  static absl::StatusOr<BenchEnd> Open(const SessionOptions& options, PostTarget target,
                                       int64_t own_device);

  // A wait that lasts longer ends with DEADLINE_EXCEEDED. Without this call there is no limit.
  void set_patience(absl::Duration patience) { patience_ = patience; }
  const PostTarget& target() const { return target_; }
  void set_remote_device(uint64_t device) { target_.remote_device = device; }
  ferry_session* session() const { return session_.get(); }
  const ArenaPtr& arena() const { return arena_; }

  absl::Status MakeArena(uint64_t bytes, unsigned flags);
  // Posts `count` transfers of `bytes` at successive offsets, in as few calls as the daemon takes.
  absl::Status PostMany(uint64_t key, uint64_t count, uint64_t bytes);
  // Posts one transfer of `count` blocks of `bytes` by block table: the arena's blocks in a random
  // order, which is the same at both ends.
  absl::Status PostBlocks(uint64_t key, uint64_t count, uint64_t bytes);
  // Prepares the same, instead of what was prepared before.
  absl::Status Prepare(uint64_t key, uint64_t count, uint64_t bytes);
  absl::Status PrepareBlocks(uint64_t key, uint64_t count, uint64_t bytes);
  // Fires once what is prepared.
  absl::Status Fire();
  // Fires it `times`, each time as soon as the firing before is over. Returns when the last one was
  // over.
  absl::StatusOr<int64_t> FireMany(uint64_t times);
  // Prepares one transfer of `bytes` each way; the arena's first half is sent.
  absl::Status PreparePing(uint64_t key, uint64_t bytes);
  // The end that begins: sends, and waits for what comes back, `times`. Returns how long each round
  // took.
  absl::StatusOr<std::vector<absl::Duration>> Ping(uint64_t times);
  // The other end: waits, and sends back, `times`.
  absl::Status Pong(uint64_t times);
  // The route of the last transfer that was posted, prepared or streamed.
  std::string Route() const { return RouteTaken(session_.get(), last_); }
  // Waits until all that was posted or fired is over. Returns when the last of it was.
  absl::StatusOr<int64_t> Await();
  // Posts `count` transfers in batches of `batch`, with at most `window` batches in flight. Offsets
  // start again at the arena's end.
  absl::StatusOr<int64_t> Stream(uint64_t key, uint64_t count, uint64_t bytes, uint64_t batch,
                                 uint64_t window);
  // Posts transfers that nobody will answer, on a timeline of their own, until Unpark.
  absl::Status Park(uint64_t key, uint64_t count, uint64_t bytes);
  absl::Status Unpark();
  // Fills the whole arena, on whatever device it is, with the contents of `number`. Contents differ
  // from page to page, so that a comparison means something. Each bit of the contents of an odd
  // number is the opposite of that of the even number before it. Forgets what has moved.
  absl::Status Fill(uint64_t number);
  // Whether anything was posted (not parked), streamed or fired since the arena was made or filled.
  bool moved() const { return moved_; }
  // A sum of all bytes of the arena that were moved, each counted once. It is the same at both ends
  // if everything has arrived.
  absl::StatusOr<uint64_t> SumOfMoved() const;

 private:
  absl::StatusOr<BatchPtr> PostOne(uint64_t key, uint64_t count, uint64_t bytes,
                                   uint64_t first_slot, uint32_t timeline);
  void FillTransfers(uint64_t key, uint64_t count, uint64_t bytes, uint64_t first_slot);
  // How many transfers of `bytes` fit the arena; and the offset of the nth transfer of a batch.
  uint64_t Slots(uint64_t bytes) const;
  uint64_t OffsetOf(uint64_t slot, uint64_t slots, uint64_t stride, uint64_t bytes) const {
    return slot % slots * stride % slots * bytes;
  }
  // Note what was moved: slots up to `end` of transfers of `bytes`; so many bytes by blocks; by a
  // ping.
  void MovedSlots(uint64_t bytes, uint64_t end);
  void MovedBlocks(uint64_t bytes);
  void MovedPing();
  void ForgetMoved();
  absl::Status AddSum(uint64_t offset, uint64_t bytes, uint64_t& sum) const;
  absl::Status Wait(const BatchPtr& batch) const { return tools::Wait(batch, patience_); }
  absl::Status Wait(ferry_prepared* prepared, uint64_t firing) const;

  absl::Duration patience_ = absl::InfiniteDuration();
  PostTarget target_;
  SessionPtr session_;
  ArenaPtr arena_;
  std::vector<BatchPtr> posted_;
  std::vector<BatchPtr> parked_;
  std::vector<PreparedPtr> prepared_;
  uint64_t prepared_bytes_ = 0;  // size of one prepared transfer or block
  uint64_t prepared_count_ = 0;
  bool prepared_blocks_ = false;
  PreparedPtr ping_[2];                   // the send and the receive
  uint64_t ping_bytes_ = 0;               // bytes each way
  uint64_t last_ = 0;                     // the transfer that was posted or prepared last
  std::vector<RangeTransfer> transfers_;  // a member only to keep its capacity
  // How many slots were moved, by the size of their transfers
  std::map<uint64_t, uint64_t> moved_slots_;
  uint64_t moved_blocks_ = 0;  // bytes, from the arena's start
  uint64_t moved_ping_ = 0;    // bytes each way
  bool moved_ = false;         // true also if a transfer without bytes has moved
};

}  // namespace ferry::tools
