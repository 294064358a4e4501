// SPDX-License-Identifier: Apache-2.0
// Bounds how often something may happen: `most` times at once, and `per_second` more each second.
// Pure; a value without a lock.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace ferry {

class TokenBucket {
 public:
  TokenBucket(double per_second, double most, absl::Time now)
      : per_second_(per_second), most_(most), tokens_(most), at_(now) {}
  // Takes one token; false if there is none: too often.
  bool Take(absl::Time now) {
    Fill(now);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }
  // New rates from now on. Tokens that are left stay, up to the new `most`.
  void Set(double per_second, double most) {
    per_second_ = per_second;
    most_ = most;
    tokens_ = std::min(tokens_, most);
  }
  // Whether it has as many tokens as it can hold: as good as new.
  bool Full(absl::Time now) {
    Fill(now);
    return tokens_ >= most_;
  }

 private:
  void Fill(absl::Time now) {
    const double seconds = absl::ToDoubleSeconds(std::max(now - at_, absl::ZeroDuration()));
    tokens_ = std::min(most_, tokens_ + seconds * per_second_);
    at_ = now;
  }
  double per_second_;
  double most_;
  double tokens_;
  absl::Time at_;
};

}  // namespace ferry
