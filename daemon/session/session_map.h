// SPDX-License-Identifier: Apache-2.0
// All sessions by their id, and the questions that are asked of all of them. Refuses nothing. Home:
// control. Owner: SessionTable, which alone adds and erases; JobMemory and ArenaRegistrar look
// sessions up.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/local_devices.h"
#include "daemon/session/session.h"

namespace ferry {

class SessionMap {
 public:
  Session& Add(std::unique_ptr<Session> session);
  // Destroys the session. What it owns must be taken out before.
  void Erase(SessionId id);

  // Null if there is none.
  Session* Find(SessionId id) const;
  size_t size() const { return sessions_.size(); }
  // By id.
  std::vector<Session*> List() const;
  size_t CountOf(uid_t uid) const;
  // The five sessions that hold the most memory of one device, or of all devices if `device` is
  // null. For errors: "session 3 (trainer) 12884901888 bytes, ...".
  std::string LargestHolders(const LocalDevice* device = nullptr) const;

  // Prepared batches of all sessions that may be fired now; and firings of all batches that there
  // ever were, those of sessions that are gone too.
  size_t prepared_armed() const;
  uint64_t prepared_firings() const;
  // The first transfer of each prepared batch of which no firing is under way.
  std::vector<TransferId> IdlePrepared() const;

 private:
  absl::btree_map<SessionId, std::unique_ptr<Session>> sessions_;
  uint64_t past_firings_ = 0;  // firings of sessions that are gone
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
