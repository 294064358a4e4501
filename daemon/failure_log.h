// SPDX-License-Identifier: Apache-2.0
// What the log says of transfers that fail: a line a second at most, which says how many more there
// were. A value. Home: control.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "transfer/engine.h"

namespace ferry {

class FailureLog {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  struct Line {
    TransferId transfer;
    std::string text;
  };
  // Nothing: it is counted, and OnTime says so.
  std::optional<Line> OnFailed(absl::Time now, const Ended& ended);
  // The last one that was left out, and how many others were, once that may be said.
  std::optional<Line> OnTime(absl::Time now);
  // When OnTime has something to say.
  absl::Time next() const { return left_out_ == 0 ? absl::InfiniteFuture() : next_; }

 private:
  absl::Time next_ = absl::InfinitePast();
  uint64_t left_out_ = 0;
  Line last_;  // of them
};

}  // namespace ferry
