// SPDX-License-Identifier: Apache-2.0
// Estimates when to ask again for a place in something bounded that is full, by the rate at which
// places were freed lately. Pure; time is an argument. Home: its owner's.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace ferry {

class RetryAfter {
 public:
  static constexpr absl::Duration kLeast = absl::Milliseconds(1);
  static constexpr absl::Duration kMost = absl::Seconds(5);
  // The estimate when no place was ever freed.
  static constexpr absl::Duration kUnknown = absl::Milliseconds(100);

  void OnFreed(absl::Time now, uint64_t places = 1);
  // In how long `places` more will probably have been freed; from kLeast to kMost.
  absl::Duration For(absl::Time now, uint64_t places) const;

 private:
  // Freed places, each counted the less the longer ago it was freed. Divided by kMemory it is their
  // rate.
  double LevelAt(absl::Time now) const;

  double level_ = 0;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace ferry
