// SPDX-License-Identifier: Apache-2.0
// Memory that the daemon sees too. Any thread; owned by the application, which keeps the session's
// inside alive. The mapping lives as long as the handle, whatever becomes of session and daemon.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "client/include/ferry/ferry.h"
#include "client/status.h"

namespace ferry::client {
class Session;
}  // namespace ferry::client

struct ferry_arena {
  std::shared_ptr<ferry::client::Session> session;
  uint64_t id = 0;
  uint64_t device = 0;
  void* data = nullptr;
  uint64_t bytes = 0;
  std::atomic<bool> released{false};
};

namespace ferry::client {

StatusPtr CreateArena(const std::shared_ptr<Session>& session, uint64_t device, uint64_t bytes,
                      unsigned flags, std::unique_ptr<ferry_arena>* arena);
StatusPtr ImportArena(const std::shared_ptr<Session>& session, uint64_t device, int memfd,
                      uint64_t bytes, std::unique_ptr<ferry_arena>* arena);

}  // namespace ferry::client
