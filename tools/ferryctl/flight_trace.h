// SPDX-License-Identifier: Apache-2.0
// Turns flight dumps of several nodes into one trace in Chrome's JSON, which ui.perfetto.dev and
// chrome://tracing open. A node is a process; a transfer or job is a slice from its post to its
// end, with slices inside for what it waited for; an arrow leads from each send to its receive;
// marks show what happened to links, sessions and the daemon. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/ferryctl/flight_diff.h"

namespace ferry::tools {

// How far the clock of `other` is ahead of that of `node`, as far as their transfers with each
// other show it: a receive is not over before its send was posted, and a send is not over before
// its receive was posted. Zero if their clocks agree with that. A part of FlightTrace that tests
// call by itself.
absl::Duration ClockAhead(const Flight& node, const Flight& other);

// `flights` is not empty; all times are by the clock of the first.
std::string FlightTrace(const std::vector<Flight>& flights);

}  // namespace ferry::tools
