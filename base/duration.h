// SPDX-License-Identifier: Apache-2.0
// Durations for people, in the same form in errors, logs and tables. Pure; any thread.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace ferry {

// "250 ms", "1.5 s", "90 s", "2 min 5 s", "3 d 4 h": rounded to about three digits, in a fitting
// unit; "for ever" if infinite. A duration that is parsed again, as in a configuration, is written
// by absl::FormatDuration instead.
std::string DurationText(absl::Duration value);

}  // namespace ferry
