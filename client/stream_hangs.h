// SPDX-License-Identifier: Apache-2.0
// Whether what a wait is for hangs on something that this process has yet to do: a post, a
// definition, a firing. What a stream was told to store counts as done, unless the stream was told
// before to wait for something that hangs itself. Functions of any thread, which may ask the
// daemon, and wait for as long as two halves may take to meet.
#pragma once

#include <cstdint>
#include <string>

struct ferry_prepared;

namespace ferry::client {

class Session;

// Why 'over' counter `timeline` cannot reach `value` before this process does something that it has
// not done; "" if nothing is known to be missing.
std::string OverHangs(Session& session, uint32_t timeline, uint64_t value);
// The same of firing `firing`.
std::string PreparedHangs(const ferry_prepared& prepared, uint64_t firing);

}  // namespace ferry::client
