// SPDX-License-Identifier: Apache-2.0
// Who is nearest to the bounds of sessions and users, for the metrics. Home: control.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry {

class SessionTable;

// A limit, and what somebody whom it bounds has of it.
struct LimitUse {
  uint64_t used = 0;
  uint64_t limit = 0;  // 0: there is nobody
};

struct Fullest {
  // Of the session that is nearest to its own limit, one each: a session keeps the limits that it
  // was opened with when a reload changes them.
  LimitUse bytes;
  LimitUse arenas;
  LimitUse transfers_in_flight;
  LimitUse kept_bytes;
  // Of the uid that has most.
  size_t sessions_of_uid = 0;
  uint64_t kept_of_uid = 0;
};
Fullest FullestOf(SessionTable& sessions);

}  // namespace ferry
