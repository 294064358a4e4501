// SPDX-License-Identifier: Apache-2.0
// RetryAfter says when to ask again for a place in something bounded that is full, from the rate at
// which places became free of late. Pure; time is an argument. Home: its owner's.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace ferry {

class RetryAfter {
 public:
  static constexpr absl::Duration kLeast = absl::Milliseconds(1);
  static constexpr absl::Duration kMost = absl::Seconds(5);
  // If no place has become free yet.
  static constexpr absl::Duration kUnknown = absl::Milliseconds(100);

  void OnFreed(absl::Time now, uint64_t places = 1);
  // When `places` will have become free, from now; from kLeast to kMost.
  absl::Duration For(absl::Time now, uint64_t places) const;

 private:
  // Places freed, each counted less the longer ago it was; over kMemory it is their rate.
  double LevelAt(absl::Time now) const;

  double level_ = 0;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace ferry
