// SPDX-License-Identifier: Apache-2.0
// The daemon's end of a session's timelines (layout: proto/ferry/v1/timeline_layout.h). The daemon
// keeps its own counts here and writes them out; what the client scribbles over the page misleads
// only the client. Home: control, but for DefinedWord, which lanes read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/ids.h"
#include "device/lane.h"
#include "device/prepared_batch.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry {

class TimelinePages {
 public:
  // Makes and maps the memfd and the doorbells.
  static absl::StatusOr<std::unique_ptr<TimelinePages>> Create();

  // How an 'over' counter stands, all of its values being over.
  struct Mark {
    uint64_t value = 0;
    uint64_t first_failed = 0;
    uint64_t failures = 0;
  };
  // Maps the memfd that another life of the daemon made for the session, and goes on from `over`
  // (by counter); the words of prepared batches begin at `prepared_from`. The client hands all of
  // it in, so it is checked like any client memory: MEMFD_UNSEALED or FIELD_INVALID, never a fault,
  // and nothing that could run over.
  // `same_daemon`: the pages were this daemon's, whose lanes may still be about to take back that
  // they are parked.
  static absl::StatusOr<std::unique_ptr<TimelinePages>> Resume(UniqueFd memfd,
                                                               const std::vector<Mark>& over,
                                                               uint64_t prepared_from,
                                                               bool same_daemon);
  ~TimelinePages();
  TimelinePages(const TimelinePages&) = delete;
  TimelinePages& operator=(const TimelinePages&) = delete;

  int memfd() const { return memfd_.get(); }
  int doorbell() const { return doorbell_.get(); }
  // What this daemon itself rings: see Doorbell.
  int own_bell() const { return own_bell_.get(); }

  // Hands out the next `count` values of an over counter; the first of them.
  uint64_t Reserve(uint32_t timeline, uint64_t count);
  // The last value handed out.
  uint64_t reserved(uint32_t timeline) const;
  // Value `value` of the counter is over. The word advances to the highest value up to which all
  // are over; it is written by Flush.
  void End(uint32_t timeline, uint64_t value, bool ok);
  // Writes what advanced since the last Flush, failure fields first, and wakes sleepers.
  void Flush();
  // Failure fields back to 0.
  void ResetFailures(uint32_t timeline);
  uint64_t over_value(uint32_t timeline) const;

  // What the client has stored in a 'defined' counter.
  uint64_t DefinedValue(uint32_t timeline) const;
  DefinedWord Defined(uint32_t timeline) const;
  // As the client would: for what was made here. A smaller value is ignored.
  void Define(uint32_t timeline, uint64_t value);
  // Prepared batch `number` begins; the pages outlive it.
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
  std::unique_ptr<std::atomic<uint64_t>[]> firings_over_;  // of prepared batches; the same
  uint64_t prepared_from_ = 0;
  uint64_t dirty_ = 0;  // bit i: counter i advanced since the last Flush
};

}  // namespace ferry
