// SPDX-License-Identifier: Apache-2.0
// A Trigger fires one bundle at one end: it says when firing n may begin, and counts the firings
// that are over. A bundle is all armed transfers between the same two prepared batches. Firing n
// may begin when firing n - 1 is over and the words of both ends allow n. The word of this end is
// that of its batch. Where the word of the other end is depends on the route:
//   local: in the send's batch (Words::source).
//   mapped, at the destination: in the link page (Words::other).
//   mapped, at the source; tcp; nccl: nowhere. Here "may begin" means that this end wants the
//   firing. The transport then says so to the other end, by the link page, by a message or by the
//   engines, and moves bytes when the other end agrees.
// So Ready() is the same question on all of them, and one that only reads memory.
//
// An example, on local. Both clients store 1: Ready(). The lane calls Begin() and copies; Ready()
// is false, although both words still allow firing 1. After the copy Over(1, 2, 2) counts both
// transfers of the bundle: both 'over' words become 1, and next() is 2. If a transfer leaves during
// the copy, the lane calls TakeBack() in place of Over(): firing 1 has not been.
//
// Route ucx does not use it. There control fires each transfer by a Go of its own, so no lane keeps
// armed transfers: the lane only watches the word (Lane::WatchWord), and the engine, which knows no
// PreparedBatch, counts firings in its halves (transfer/rules/launch_rules.cc). To share this class
// would mean that lanes decide there too, which changes what daemons say to each other.
//
// Home: the lane. Owner: the transport's record of the bundle. It owns nothing: the batches and the
// other end's word outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/home.h"
#include "device/lane.h"
#include "device/prepared_batch.h"

namespace ferry {

class Trigger {
 public:
  // Where the words are that allow a firing.
  struct Words {
    PreparedBatch* own = nullptr;     // the batch of the transfers that this lane keeps
    PreparedBatch* source = nullptr;  // local: the send's batch, on the receive's lane
    // A word in shared memory that the other end sets to n when it wants firing n. Null: see above.
    const uint64_t* other = nullptr;
    std::optional<Doorbell> doorbell;  // rung by the other end, for a lane that is parked
  };

  // From here to the end of the trigger the lane hears the doorbells of the words.
  Trigger(Lane& lane, const Words& words) : lane_(lane), words_(words) {
    lane_.Hear(words_.own->doorbell());
    if (words_.source != nullptr) lane_.Hear(words_.source->doorbell());
    if (words_.doorbell) lane_.Hear(*words_.doorbell);
  }
  ~Trigger() {
    lane_.Unhear(words_.own->doorbell());
    if (words_.source != nullptr) lane_.Unhear(words_.source->doorbell());
    if (words_.doorbell) lane_.Unhear(*words_.doorbell);
  }
  Trigger(const Trigger&) = delete;
  Trigger& operator=(const Trigger&) = delete;

  // A transfer joins the bundle, or leaves it. Nothing fires before all of a batch have joined.
  void Arm() {
    home_.Check();
    words_.own->Arm();
    if (words_.source != nullptr) words_.source->Arm();
  }
  void Disarm() {
    home_.Check();
    words_.own->Disarm();
    if (words_.source != nullptr) words_.source->Disarm();
  }

  // The number of the firing that is waited for, or, if begun(), under way; counts from 1.
  uint64_t next() const { return over_ + 1; }
  bool begun() const { return begun_; }
  // True if firing next() may begin and has not begun.
  bool Ready() const {
    if (begun_ || stopped_ || !words_.own->Wants(next())) return false;
    if (words_.source != nullptr) return words_.source->Wants(next());
    return words_.other == nullptr || __atomic_load_n(words_.other, __ATOMIC_SEQ_CST) >= next();
  }
  // Firing next() begins.
  void Begin() {
    home_.Check();
    begun_ = true;
  }
  // Firing next() has not been: it begins anew when it may. False if it had not begun.
  bool TakeBack() {
    home_.Check();
    return std::exchange(begun_, false);
  }
  // Firing next() has not been, and no firing begins any more.
  void Stop() {
    home_.Check();
    begun_ = false;
    stopped_ = true;
  }
  // Firing `n` is over for `transfers` more of the bundle's `all` transfers: the words of the
  // batches are told. True if it is over for all of them: then next() is the firing after. `n` is
  // next(), or an older firing if the bundle has lost transfers since `n` began.
  bool Over(uint64_t n, uint32_t transfers, size_t all) {
    home_.Check();
    words_.own->Over(n, transfers);
    if (words_.source != nullptr) words_.source->Over(n, transfers);
    transfers_over_ += transfers;
    if (transfers_over_ < all) return false;
    transfers_over_ = 0;
    begun_ = false;
    ++over_;
    return true;
  }

 private:
  Lane& lane_;
  const Words words_;
  uint64_t over_ = 0;          // firings that are over
  size_t transfers_over_ = 0;  // transfers for which firing next() is over; less than all
  bool begun_ = false;
  bool stopped_ = false;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
