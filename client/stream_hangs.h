// SPDX-License-Identifier: Apache-2.0
// Finds out whether a wait hangs on something that this process has yet to do: a post, a
// definition, a firing. A store that a stream was told to make counts as done, unless the stream
// was told before to wait for something that hangs itself. Any thread; the functions may ask the
// daemon, and wait as long as two halves may take to meet.
#pragma once

#include <cstdint>
#include <string>

struct ferry_prepared;

namespace ferry::client {

class Session;

// Why 'over' counter `timeline` cannot reach `value` before this process does something more; "" if
// nothing is known to be missing.
std::string OverHangs(Session& session, uint32_t timeline, uint64_t value);
// The same for firing `firing` of a prepared batch.
std::string PreparedHangs(const ferry_prepared& prepared, uint64_t firing);

}  // namespace ferry::client
