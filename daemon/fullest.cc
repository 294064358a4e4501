// SPDX-License-Identifier: Apache-2.0
#include "daemon/fullest.h"

#include <sys/types.h>

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "daemon/session/session_table.h"

namespace ferry {
namespace {

double ShareOf(const LimitUse& use) {
  return use.limit == 0 ? 0 : static_cast<double>(use.used) / static_cast<double>(use.limit);
}

void Fuller(LimitUse& fullest, const LimitUse& use) {
  if (fullest.limit == 0 || ShareOf(use) > ShareOf(fullest)) fullest = use;
}

}  // namespace

Fullest FullestOf(SessionTable& sessions) {
  struct User {
    size_t sessions = 0;
    uint64_t record_bytes = 0;
  };
  Fullest fullest;
  absl::flat_hash_map<uid_t, User> users;
  for (const Session* session : sessions.List()) {
    const SessionUse use = session->use();
    const SessionUse& quota = session->limits().quota;
    Fuller(fullest.bytes, {use.bytes, quota.bytes});
    Fuller(fullest.arenas, {use.arenas, quota.arenas});
    Fuller(fullest.transfers_in_flight, {use.transfers_in_flight, quota.transfers_in_flight});
    Fuller(fullest.record_bytes, {session->record_bytes(), session->limits().record_bytes});
    User& user = users[session->credentials().uid];
    user.record_bytes += session->record_bytes();
    fullest.sessions_of_uid = std::max(fullest.sessions_of_uid, ++user.sessions);
    fullest.record_bytes_of_uid = std::max(fullest.record_bytes_of_uid, user.record_bytes);
  }
  return fullest;
}

}  // namespace ferry
