// SPDX-License-Identifier: Apache-2.0
// Flight dumps of nodes as one trace in Chrome's JSON, which ui.perfetto.dev and chrome://tracing
// open: a process for each node, a slice for each transfer and job from its post to its end, with
// what it waited for inside, an arrow from each send to its receive, and marks for what happened to
// links, sessions and the daemon. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/ferryctl/flight_diff.h"

namespace ferry::tools {

// How far the clock of `other` is ahead of that of `node`, as far as their transfers with each
// other show it: a receive is not over before its send was posted, and a send not before its
// receive is. Zero if their clocks agree with that.
absl::Duration ClockAhead(const Flight& node, const Flight& other);

// At least one; all times are by the first one's clock.
std::string FlightTrace(const std::vector<Flight>& flights);

}  // namespace ferry::tools
