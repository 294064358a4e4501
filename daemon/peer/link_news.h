// SPDX-License-Identifier: Apache-2.0
// Thins out the log of one link: one line when the link is up, one when it is lost, and while it
// stays lost one line in kPeriod with the number of attempts that failed. Home: control.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"

namespace ferry {

class LinkNews {
 public:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);

  struct Line {
    bool warn = false;  // true: a warning; false: nothing is wrong, a daemon was stopped on purpose
    std::string text;
  };
  // The line to log when the link is lost, or once more could not be opened. Nothing if it is too
  // early for a further line: then the attempt is counted and a later line tells of it. `goodbye`:
  // one of the two daemons stops.
  std::optional<Line> OnLost(absl::Time now, const absl::Status& why, bool goodbye);
  // What to put before the news that the link is up: "after 5m3s and 80 attempts, ", or "" if no
  // line said that it was lost.
  std::string OnUp(absl::Time now);

 private:
  bool lost_ = false;
  bool goodbye_ = false;  // OnLost's `goodbye` when the link was lost
  absl::Time since_;
  absl::Time next_;
  uint64_t attempts_ = 0;  // attempts that failed since the link was lost
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
