// SPDX-License-Identifier: Apache-2.0
// How near sessions and users are to their bounds: the fullest of each kind, for the metrics. Home:
// control.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry {

class SessionTable;

// A limit, and how much of it is used by the session or user that it bounds.
struct LimitUse {
  uint64_t used = 0;
  uint64_t limit = 0;  // 0: there is no such session
};

struct Fullest {
  // For each limit the session that is nearest to it. The limit is that session's own: a session
  // keeps the limits that it was opened with when a reload changes them.
  LimitUse bytes;
  LimitUse arenas;
  LimitUse transfers_in_flight;
  LimitUse record_bytes;
  // The most that any uid has; the two may be of different uids.
  size_t sessions_of_uid = 0;
  uint64_t record_bytes_of_uid = 0;
};
Fullest FullestOf(SessionTable& sessions);

}  // namespace ferry
