// SPDX-License-Identifier: Apache-2.0
// Keeps the last kCapacity entries of the daemon in fixed memory, always on. A dump ends with them,
// and a failed check prints them. An entry is a fixed-size record (no allocation, about 50 ns). Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace ferry {

class FlightRecorder {
 public:
  static constexpr size_t kCapacity = 8192;

  struct Entry {
    uint64_t number = 0;  // counts all entries, so that a gap shows what was overwritten
    int64_t monotonic_nanos = 0;
    // Filled in by Snapshot: reading one clock for each entry is enough.
    int64_t realtime_nanos = 0;
    const char* what = "";  // a literal: "post.send", "offer", "go", "done", ...
    uint64_t a = 0;         // depends on `what`; usually the transfer or session
    bool transfer = false;  // `a` is a TransferId
    uint64_t key = 0;       // both ends' name for the transfer (MatchFingerprint), or 0
    uint64_t b = 0;         // usually the peer or device
    uint64_t c = 0;         // usually bytes or a count
    char text[64] = {};     // cut to size; key fingerprints, reasons; never contents or tokens
  };

  // The daemon's one recorder. It is process-wide on purpose: a failed check anywhere must reach
  // it.
  static FlightRecorder& Get();

  void Record(const char* what, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0,
              absl::string_view text = {});
  void Record(const char* what, TransferId transfer, uint64_t b = 0, uint64_t c = 0,
              absl::string_view text = {}, uint64_t key = 0);
  // Oldest first.
  std::vector<Entry> Snapshot() const;
  // One line for each entry, oldest first:
  //   "  #12 2026-01-02T03:04:05.678901Z +1.234567s launch session 3 transfer 7 b=1 c=4096
  //   key:1f2e"
  std::string Dump() const;

 private:
  void Keep(const char* what, uint64_t a, bool transfer, uint64_t b, uint64_t c,
            absl::string_view text, uint64_t key);
  mutable Mutex mutex_;
  std::vector<Entry> ring_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ferry
