// SPDX-License-Identifier: Apache-2.0
// Thins out the log of failed transfers: at most one line in kPeriod, which says how many more
// there were. Home: control.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/engine.h"

namespace ferry {

class FailureLog {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  struct Line {
    TransferId transfer;
    std::string text;
  };
  // The line to log for a failed transfer. Nothing if a line was logged less than kPeriod ago: then
  // the failure is counted, and OnTime tells of it later.
  std::optional<Line> OnFailed(absl::Time now, const Ended& ended);
  // A line with the last failure that was left out and how many others were; nothing before it is
  // time.
  std::optional<Line> OnTime(absl::Time now);
  // When to call OnTime; infinite if nothing was left out.
  absl::Time next() const { return left_out_ == 0 ? absl::InfiniteFuture() : next_; }

 private:
  absl::Time next_ = absl::InfinitePast();
  uint64_t left_out_ = 0;
  Line last_;  // the last failure that was left out
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
