// SPDX-License-Identifier: Apache-2.0
// How often something may happen: so many times at once, and as many again as time brings. Pure; a
// value without a lock.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace ferry {

class TokenBucket {
 public:
  TokenBucket(double per_second, double most, absl::Time now)
      : per_second_(per_second), most_(most), tokens_(most), at_(now) {}
  // False: too often.
  bool Take(absl::Time now) {
    Fill(now);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }
  // From now on; what is left stays, up to the new most.
  void Set(double per_second, double most) {
    per_second_ = per_second;
    most_ = most;
    tokens_ = std::min(tokens_, most);
  }
  // Nothing was taken for long enough: as good as new.
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
