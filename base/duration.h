// SPDX-License-Identifier: Apache-2.0
// Lengths of time as people read them, alike in errors, logs and tables. Pure; any thread.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace ferry {

// "250 ms", "1.5 s", "90 s", "2 min 5 s", "3 d 4 h": three digits or so, rounded, and a unit that
// fits; "for ever" if infinite. What is read again, as in configurations, is as
// absl::FormatDuration writes it.
std::string DurationText(absl::Duration value);

}  // namespace ferry
