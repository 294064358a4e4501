// SPDX-License-Identifier: Apache-2.0
// Memory that the daemon sees too. Any thread; owned by the application, which keeps the session's
// inside alive. The mapping lives as long as the handle, whatever becomes of session and daemon; a
// daemon that comes back is shown it again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "client/include/ferry/ferry.h"
#include "client/status.h"

namespace ferry::client {
class Session;
}  // namespace ferry::client

struct ferry_arena {
  std::shared_ptr<ferry::client::Session> session;
  // What the daemon calls it, by now; 0: it does not know it. Read on a connection before a call on
  // that connection: it changes only when the session has none.
  std::atomic<uint64_t> id{0};
  uint64_t device = 0;
  void* data = nullptr;
  uint64_t bytes = 0;
  bool imported = false;
  int memfd = -1;     // kept for the next daemon; -1: the session will not be re-attached
  uint64_t kept = 0;  // at the session
  std::atomic<bool> released{false};

  mutable std::mutex mutex;          // guards what follows
  uint64_t connection = 0;           // the number of that which knows it as `id`
  ferry::client::StatusPtr refused;  // why id is 0
};

namespace ferry::client {

StatusPtr CreateArena(const std::shared_ptr<Session>& session, uint64_t device, uint64_t bytes,
                      unsigned flags, std::unique_ptr<ferry_arena>* arena);
StatusPtr ImportArena(const std::shared_ptr<Session>& session, uint64_t device, int memfd,
                      uint64_t bytes, std::unique_ptr<ferry_arena>* arena);
// Gives it back to the daemon; an error changes nothing.
StatusPtr ReleaseArena(ferry_arena* arena);
// Gives back what was not, unmaps, frees.
void FreeArena(ferry_arena* arena);
// Null if the daemon knows it (or knew it until it was released); else why not.
StatusPtr CheckArena(const ferry_arena& arena);

}  // namespace ferry::client
