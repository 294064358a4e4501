// SPDX-License-Identifier: Apache-2.0
// How the transfers and jobs of one session have ended: counts, why they failed, and the endings in
// the order in which they were recorded, for who watches the session. Refuses nothing; forgets the
// oldest: it keeps the last `failures_kept` failures and kFailureBytesKept bytes of their texts,
// and the last kEndingsKept endings. Home: control. Owner: Session.
//
// Endings are numbered from 1. Those that are kept have the numbers [first(), next()). Example:
// transfer 3 ends, then transfer 1 fails. at(1) is transfer 3, at(2) is transfer 1, next() is 3,
// and FindFailure(1) says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/types.h"

namespace ferry {

// The ending of one transfer, kept for watchers and GetTransfers.
struct EndedTransfer {
  uint64_t sequence = 0;  // the transfer's number in its session
  Route route = Route::kUnspecified;
  bool ok = true;
};

class EndingLog {
 public:
  static constexpr size_t kEndingsKept = 65536;
  // Bytes of the kept texts of failures.
  static constexpr size_t kFailureBytesKept = size_t{4} << 20;

  explicit EndingLog(size_t failures_kept) : failures_kept_(failures_kept) {}

  // --- Counts. Of all transfers of the session, those of its jobs too.
  void Count(bool ok, uint64_t count) {
    home_.Check();
    (ok ? transfers_ok_ : transfers_failed_) += count;
  }
  uint64_t transfers_ok() const { return transfers_ok_; }
  uint64_t transfers_failed() const { return transfers_failed_; }

  // --- Failures. The transfers [sequence, sequence + count) have failed with the status.
  void AddFailures(uint64_t sequence, uint32_t count, const absl::Status& status);
  // Why a transfer failed; nothing if it did not, or if that is forgotten. Failures of ids up to
  // forgotten_failures() may be forgotten.
  std::optional<absl::Status> FindFailure(uint64_t sequence) const;
  uint64_t forgotten_failures() const { return forgotten_failures_; }

  // --- Endings.
  void Add(const EndedTransfer& ended);
  uint64_t first() const { return next_ - endings_.size(); }
  uint64_t next() const { return next_; }
  // The ending of this number, which is kept.
  const EndedTransfer& at(uint64_t number) const { return endings_[number - first()]; }

  // --- Watchers, one for each watch stream. `notify` is called by NotifyWatchers, after endings
  // were recorded.
  uint64_t AddWatcher(std::function<void()> notify);
  void RemoveWatcher(uint64_t id) {
    home_.Check();
    watchers_.erase(id);
  }
  void NotifyWatchers() const;

 private:
  const size_t failures_kept_;
  uint64_t transfers_ok_ = 0;
  uint64_t transfers_failed_ = 0;
  absl::flat_hash_map<uint64_t, absl::Status> failures_;  // by the transfer's number
  size_t failure_bytes_ = 0;                              // bytes of the texts in `failures_`
  std::deque<uint64_t> failure_order_;                    // keys of `failures_`, the oldest first
  uint64_t forgotten_failures_ = 0;  // the highest number of a transfer whose failure is forgotten

  std::deque<EndedTransfer> endings_;
  uint64_t next_ = 1;  // number of the next ending
  absl::flat_hash_map<uint64_t, std::function<void()>> watchers_;
  uint64_t next_watcher_ = 1;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
