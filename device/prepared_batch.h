// SPDX-License-Identifier: Apache-2.0
// One end of a prepared batch: its two words in the session's pages
// (proto/ferry/v1/timeline_layout.h says what they mean), and how much of the present firing is not
// over. The daemon counts for itself. Of the page it reads 'defined' alone, as permission to fire.
// If a client stores ahead, its word is looked at again when the firing before is over: it misleads
// only itself.
//
// When a prepared job is joined to the batch, the daemon fires it instead of its client.
//
// Here firings count from 1. The shared words, and the count behind `over`, start at `from`: after
// a restart of the daemon they must not be lower than a value that some stream still waits for.
//
// Owned by the session, which keeps it until its last transfer is over and nothing is joined to it.
// Home: made, joined, ended and destroyed on control. All else is for any lane, takes no lock and
// allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/home.h"
#include "device/lane.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry {

class PreparedBatch {
 public:
  // A batch of `transfers` transfers (not 0). Sets both words and `over`, the batch's count, to
  // `from`. The pages, the doorbell and the count must outlive the batch, because lanes may still
  // watch them.
  PreparedBatch(ferry_timeline_pages& pages, const Doorbell& doorbell, uint32_t number,
                uint32_t transfers, uint64_t from, std::atomic<uint64_t>& over);
  PreparedBatch(const PreparedBatch&) = delete;
  PreparedBatch& operator=(const PreparedBatch&) = delete;

  // One more transfer of the batch is armed; one transfer fewer is. The batch fires only while all
  // its transfers are armed, so that transfers that belong together begin together.
  void Arm();
  void Disarm();
  bool armed() const { return armed_.load(std::memory_order_acquire) == transfers_; }

  // True if this end wants firing `n` (not 0): all transfers are armed, firing n - 1 is over, and
  // the client has stored n.
  bool Wants(uint64_t n) const;
  // True if the client has stored a firing that is not over; it may wait for the other end.
  // Control.
  bool Firing() const;
  // Firing `n` is over for `transfers` more of its transfers. When it is over for all, the word
  // advances.
  void Over(uint64_t n, uint32_t transfers);
  // Batches of jobs: firing `n` has begun. begun() is the last firing that has.
  void Begin(uint64_t n) { begun_.store(n, std::memory_order_relaxed); }
  uint64_t begun() const { return begun_.load(std::memory_order_relaxed); }

  // While set, the daemon fires the batch, and its lanes are rung when a firing is over.
  void SetJoined(bool joined) {
    home_.Check();
    joined_.store(joined, std::memory_order_seq_cst);
  }
  // Asks for firing `n`, as a client would.
  void Define(uint64_t n);
  // True if firing `n` is over and the batch has not ended.
  bool IsOver(uint64_t n) const;

  // The client rings it after a store, this daemon when lanes must look again.
  const Doorbell& doorbell() const { return doorbell_; }
  // The client's word, for Lane::WatchWord. A watcher sees no firing before the firing before it is
  // over for the whole batch.
  DefinedWord defined() const;
  // The value of the words at firing `n`.
  uint64_t ValueOf(uint64_t n) const { return from_ + n; }

  // No further firing will be over, and the 'over' word says so. Once; control, when the last
  // transfer has ended.
  void End();
  // Number of firings that were over.
  uint64_t firings() const;

 private:
  void Advance(uint64_t value);
  void Ring() const;

  ferry_timeline_line& over_line_;
  uint64_t& defined_word_;
  ferry_timeline_signals& signals_;
  const Doorbell doorbell_;
  const uint32_t transfers_;
  const uint64_t from_;
  std::atomic<uint32_t> armed_{0};
  std::atomic<uint32_t> left_;   // transfers of the firing after `over_` that are not over
  std::atomic<uint64_t>& over_;  // as in the 'over' word; FERRY_PREPARED_ENDED: ended, at `last_`
  std::atomic<uint64_t> last_;
  std::atomic<uint64_t> begun_{0};
  std::atomic<bool> joined_{false};
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
