// SPDX-License-Identifier: Apache-2.0
// The daemon's end of a session's timelines (layout: proto/ferry/v1/timeline_layout.h). The daemon
// counts for itself here and writes its counts out; what the client scribbles over the page
// misleads only the client. Home: control; Defined() and its word: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/home.h"
#include "base/ids.h"
#include "device/lane.h"
#include "device/prepared_batch.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry {

class TimelinePages {
 public:
  // Makes and maps the memfd and the doorbells.
  static absl::StatusOr<std::unique_ptr<TimelinePages>> Create();

  // The state of an 'over' counter all of whose values are over.
  struct Mark {
    uint64_t value = 0;
    uint64_t first_failed = 0;
    uint64_t failures = 0;
  };
  // Maps the memfd that another life of the daemon made for the session, and goes on from `over`
  // (by counter). The words of prepared batches begin at `prepared_from`. The client hands all of
  // this in, so it is checked as client memory is: MEMFD_UNSEALED or FIELD_INVALID, never a fault,
  // and no counter that could overflow. `same_daemon`: the pages were this daemon's, and its lanes
  // may still be about to take back that they are parked.
  static absl::StatusOr<std::unique_ptr<TimelinePages>> Resume(UniqueFd memfd,
                                                               const std::vector<Mark>& over,
                                                               uint64_t prepared_from,
                                                               bool same_daemon);
  ~TimelinePages();
  TimelinePages(const TimelinePages&) = delete;
  TimelinePages& operator=(const TimelinePages&) = delete;

  int memfd() const { return memfd_.get(); }
  int doorbell() const { return doorbell_.get(); }
  // The eventfd that this daemon itself rings: see Doorbell.
  int own_bell() const { return own_bell_.get(); }

  // Hands out the next `count` values of an 'over' counter; returns the first.
  uint64_t Reserve(uint32_t timeline, uint64_t count);
  // The last value that was handed out.
  uint64_t reserved(uint32_t timeline) const;
  // Value `value` of the counter is over. Flush() advances the word to the highest value up to
  // which all are over.
  void End(uint32_t timeline, uint64_t value, bool ok);
  // Writes the counters that advanced since the last Flush(), failure fields first, and wakes
  // sleepers.
  void Flush();
  // Sets the failure fields to 0.
  void ResetFailures(uint32_t timeline);
  uint64_t over_value(uint32_t timeline) const;

  // What the client has stored in a 'defined' counter.
  uint64_t DefinedValue(uint32_t timeline) const;
  DefinedWord Defined(uint32_t timeline) const;
  // Stores a value as the client would, for results that were made here. A smaller value is
  // ignored.
  void Define(uint32_t timeline, uint64_t value);
  // Begins prepared batch `number`; the pages must outlive it.
  std::unique_ptr<PreparedBatch> Prepare(uint32_t number, uint32_t transfers);
  const void* begin() const { return pages_; }
  const void* end() const { return reinterpret_cast<const char*>(pages_) + FERRY_TIMELINE_BYTES; }

 private:
  struct Counter;
  TimelinePages();
  absl::Status MapAndRing();
  UniqueFd memfd_;
  UniqueFd doorbell_;
  UniqueFd own_bell_;
  ferry_timeline_pages* pages_ = nullptr;
  std::vector<std::unique_ptr<Counter>> counters_;  // made at first use: an idle session is small
  std::unique_ptr<std::atomic<uint64_t>[]> firings_over_;  // by prepared batch; made at first use
  uint64_t prepared_from_ = 0;
  uint64_t dirty_ = 0;  // bit i: counter i advanced since the last Flush
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
