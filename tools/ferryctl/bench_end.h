// SPDX-License-Identifier: Apache-2.0
// One end of a measurement, the same code for both: a session, an arena and batches of equal
// transfers. One thread.
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

// `key` as 8 bytes, big-endian, as PJRT's are.
std::string NumberKey(uint64_t key);

class BenchEnd {
 public:
  static absl::StatusOr<BenchEnd> Open(const SessionOptions& options, PostTarget target,
                                       int64_t own_device);

  // What is waited for longer ends with DEADLINE_EXCEEDED; without limit if nothing is said.
  void set_patience(absl::Duration patience) { patience_ = patience; }
  const PostTarget& target() const { return target_; }
  void set_remote_device(uint64_t device) { target_.remote_device = device; }
  ferry_session* session() const { return session_.get(); }
  const ArenaPtr& arena() const { return arena_; }

  absl::Status MakeArena(uint64_t bytes, unsigned flags);
  // `count` transfers of `bytes` at successive offsets, in as few calls as the daemon takes.
  absl::Status PostMany(uint64_t key, uint64_t count, uint64_t bytes);
  // One transfer of `count` blocks of `bytes` by block table: the arena's blocks in a random order,
  // the same at both ends.
  absl::Status PostBlocks(uint64_t key, uint64_t count, uint64_t bytes);
  // As many, or the same blocks, prepared, in place of what was prepared before.
  absl::Status Prepare(uint64_t key, uint64_t count, uint64_t bytes);
  absl::Status PrepareBlocks(uint64_t key, uint64_t count, uint64_t bytes);
  // What is prepared, once more.
  absl::Status Fire();
  // The same `times`, each as soon as the one before is over; when the last was.
  absl::StatusOr<int64_t> FireMany(uint64_t times);
  // One transfer of `bytes` each way, prepared; the arena's first half is sent.
  absl::Status PreparePing(uint64_t key, uint64_t bytes);
  // As whoever begins: sends, and awaits what comes back; how long each took.
  absl::StatusOr<std::vector<absl::Duration>> Ping(uint64_t times);
  // As the other one: awaits, and sends back.
  absl::Status Pong(uint64_t times);
  // That the last one took of what was posted, prepared or streamed.
  std::string Route() const { return RouteTaken(session_.get(), last_); }
  // Until all that was posted or fired is over; when the last was.
  absl::StatusOr<int64_t> Await();
  // Batches of `batch`, at most `window` of them at once; offsets repeat with the arena.
  absl::StatusOr<int64_t> Stream(uint64_t key, uint64_t count, uint64_t bytes, uint64_t batch,
                                 uint64_t window);
  // Posts what nobody will answer, on a timeline of its own.
  absl::Status Park(uint64_t key, uint64_t count, uint64_t bytes);
  absl::Status Unpark();
  // All of the arena, on whatever device: contents that differ from page to page, so that a
  // comparison means something, and from one half of `number` to another. Each bit of an odd number
  // is the other one of that with the even number before. What has moved counts no more.
  absl::Status Fill(uint64_t number);
  // Whether anything was posted, streamed or fired, and not parked, since the arena was made or
  // filled.
  bool moved() const { return moved_; }
  // What all bytes of the arena that were add up to, each once: the same at both ends if all has
  // arrived.
  absl::StatusOr<uint64_t> SumOfMoved() const;

 private:
  absl::StatusOr<BatchPtr> PostOne(uint64_t key, uint64_t count, uint64_t bytes,
                                   uint64_t first_slot, uint32_t timeline);
  void FillPieces(uint64_t key, uint64_t count, uint64_t bytes, uint64_t first_slot);
  // How many pieces of `bytes` the arena has room for, and where the nth of a batch is.
  uint64_t Slots(uint64_t bytes) const;
  uint64_t OffsetOf(uint64_t slot, uint64_t slots, uint64_t stride, uint64_t bytes) const {
    return slot % slots * stride % slots * bytes;
  }
  // The slots up to `end` were used, by pieces of `bytes`; so many bytes by blocks; by a ping.
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
  uint64_t prepared_bytes_ = 0;  // of a piece or block of it
  uint64_t prepared_count_ = 0;
  bool prepared_blocks_ = false;
  PreparedPtr ping_[2];                       // the send and the receive
  uint64_t ping_bytes_ = 0;                   // each way
  uint64_t last_ = 0;                         // transfer
  std::vector<Piece> pieces_;                 // kept for its capacity
  std::map<uint64_t, uint64_t> moved_slots_;  // how many, by the size of pieces
  uint64_t moved_blocks_ = 0;                 // bytes, from the arena's begin
  uint64_t moved_ping_ = 0;                   // bytes each way
  bool moved_ = false;                        // any of these, or what has no bytes
};

}  // namespace ferry::tools
