// SPDX-License-Identifier: Apache-2.0
// Who is nearest to the bounds of sessions and users, for the metrics. Home: control.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/attach.h"

namespace ferry {

class SessionTable;

// Of what limits bound, the most that any session has, or all sessions of any uid.
struct Fullest {
  SessionUse session;  // each of it of another one
  uint64_t kept_of_session = 0;
  size_t sessions_of_uid = 0;
  uint64_t kept_of_uid = 0;
};
Fullest FullestOf(SessionTable& sessions);

}  // namespace ferry
