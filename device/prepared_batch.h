// SPDX-License-Identifier: Apache-2.0
// One end of a prepared batch: its two words in the session's pages (what they mean is in
// proto/ferry/v1/timeline_layout.h), and what of a firing is not over yet. The daemon keeps its own
// count and believes nothing it reads in the page but 'defined' as a go: a client that stores ahead
// is looked at again when the firing before is over, and misleads only itself.
//
// A batch may be fired by the daemon instead of by its client, when a prepared job is joined to it.
//
// Here firings count from 1. The words, and the count behind `over`, begin at `from` instead, so
// that they never fall behind what somebody waits for who knew them in another life of the daemon.
//
// Owned by the session, which keeps it until its last transfer is over and nothing is joined to it.
// Home: made, joined, ended and destroyed on control; all else is for any lane, without a lock and
// without allocating.
#pragma once

#include <atomic>
#include <cstdint>

#include "device/lane.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry {

class PreparedBatch {
 public:
  // Of `transfers` (not 0). Sets both words and `over`, its own count, to `from`. The pages, the
  // doorbell and the count outlive it, because lanes that watch may.
  PreparedBatch(ferry_timeline_pages& pages, const Doorbell& doorbell, uint32_t number,
                uint32_t transfers, uint64_t from, std::atomic<uint64_t>& over);
  PreparedBatch(const PreparedBatch&) = delete;
  PreparedBatch& operator=(const PreparedBatch&) = delete;

  // One more of its transfers may be fired; or may not any more. Nothing fires before all may, so
  // that what belongs together is together by then.
  void Arm();
  void Disarm();
  bool armed() const { return armed_.load(std::memory_order_acquire) == transfers_; }

  // This end wants firing `n`, not 0: all of its transfers are armed, the one before is over and
  // the client has stored it.
  bool Wants(uint64_t n) const;
  // The client has stored a firing that is not over; it may wait for the other end. Control.
  bool Firing() const;
  // Firing `n` is over for so many of its transfers. The last ones advance the word.
  void Over(uint64_t n, uint32_t transfers);
  // Firing `n` has begun; the last one that has, of a batch of jobs.
  void Begin(uint64_t n) { begun_.store(n, std::memory_order_relaxed); }
  uint64_t begun() const { return begun_.load(std::memory_order_relaxed); }

  // Somebody in the daemon fires it, and is rung when a firing is over.
  void SetJoined(bool joined) { joined_.store(joined, std::memory_order_seq_cst); }
  // Fires it as the client would.
  void Define(uint64_t n);
  // Firing `n` is over, and the batch is not.
  bool IsOver(uint64_t n) const;

  // Where the client rings after a store, and this daemon when lanes have to look again.
  const Doorbell& doorbell() const { return doorbell_; }
  // The client's word, for Lane::WatchWord: no firing is seen before the one before is over for the
  // whole batch.
  DefinedWord defined() const;
  // What the words are at firing `n`.
  uint64_t ValueOf(uint64_t n) const { return from_ + n; }

  // No further firing will be over: the word says so, once. Control, when the last transfer ended.
  void End();
  // That were over.
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
  std::atomic<uint32_t> left_;   // of the firing after `over_`
  std::atomic<uint64_t>& over_;  // as in the word; FERRY_PREPARED_ENDED: ended, at `last_`
  std::atomic<uint64_t> last_;
  std::atomic<uint64_t> begun_{0};
  std::atomic<bool> joined_{false};
};

}  // namespace ferry
