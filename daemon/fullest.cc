// SPDX-License-Identifier: Apache-2.0
#include "daemon/fullest.h"

#include <sys/types.h>

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "daemon/session_table.h"

namespace ferry {

Fullest FullestOf(SessionTable& sessions) {
  struct User {
    size_t sessions = 0;
    uint64_t kept = 0;
  };
  Fullest fullest;
  absl::flat_hash_map<uid_t, User> users;
  for (const Session* session : sessions.List()) {
    const SessionUse use = session->use();
    SessionUse& most = fullest.session;
    most.bytes = std::max(most.bytes, use.bytes);
    most.arenas = std::max(most.arenas, use.arenas);
    most.transfers_in_flight = std::max(most.transfers_in_flight, use.transfers_in_flight);
    fullest.kept_of_session = std::max(fullest.kept_of_session, session->kept_bytes());
    User& user = users[session->credentials().uid];
    user.kept += session->kept_bytes();
    fullest.sessions_of_uid = std::max(fullest.sessions_of_uid, ++user.sessions);
    fullest.kept_of_uid = std::max(fullest.kept_of_uid, user.kept);
  }
  return fullest;
}

}  // namespace ferry
