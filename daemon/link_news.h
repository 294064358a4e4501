// SPDX-License-Identifier: Apache-2.0
// What the log says of one link: that it is up or lost once, and while it stays lost a line a
// minute with how often it was tried. A value. Home: control.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ferry {

class LinkNews {
 public:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);

  struct Line {
    bool warn = false;  // else it is as somebody wanted it
    std::string text;
  };
  // The link is lost, or could not be opened, once more. `goodbye`: one of its daemons stops.
  // Nothing: it is counted and said later.
  std::optional<Line> OnLost(absl::Time now, const absl::Status& why, bool goodbye);
  // "after 5m3s and 80 attempts, ", or "" if it was not said to be lost.
  std::string OnUp(absl::Time now);

 private:
  bool lost_ = false;
  bool goodbye_ = false;  // it was when it was lost
  absl::Time since_;
  absl::Time next_;
  uint64_t attempts_ = 0;  // since it was lost, that failed
};

}  // namespace ferry
