// SPDX-License-Identifier: Apache-2.0
// Bytes that the daemon keeps for a session, a uid or a peer (records, layouts, keys), and the
// bound on them. Pure; time is an argument. Home: its owner's, on control. Invariant: what was
// taken is given back exactly once.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/home.h"
#include "base/retry_after.h"
#include "transfer/types.h"

namespace ferry {

// Bytes kept for one transfer or offer: its record, key and layout.
uint64_t RecordBytesOf(const MatchKey& key, const Layout& layout);

class RecordBytes {
 public:
  explicit RecordBytes(uint64_t most) : most_(most) {}

  uint64_t bytes() const { return bytes_; }
  void SetMost(uint64_t most) {
    home_.Check();
    most_ = most;
  }
  bool Fits(uint64_t more) const { return bytes_ <= most_ && more <= most_ - bytes_; }
  // RESOURCE_EXHAUSTED/QUEUE_FULL for `more` bytes that do not fit, with when to try again if that
  // can help. `doing`: "post 3 transfers". `setting`: the setting that bounds the bytes.
  absl::Status Full(absl::Time now, uint64_t more, absl::string_view doing, absl::string_view whose,
                    absl::string_view setting) const;
  void Take(uint64_t bytes) {
    home_.Check();
    bytes_ += bytes;
  }
  void Give(uint64_t bytes) {
    home_.Check();
    FERRY_CHECK(bytes <= bytes_);
    bytes_ -= bytes;
    given_ += bytes;
  }
  // Takes what was given back until now into the estimate of when there will be room.
  void Settle(absl::Time now);

 private:
  uint64_t most_;
  uint64_t bytes_ = 0;
  uint64_t given_ = 0;  // since the last Settle()
  RetryAfter freed_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
