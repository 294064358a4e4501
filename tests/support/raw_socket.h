// SPDX-License-Identifier: Apache-2.0
// A Unix socket that keeps to no protocol. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "tests/support/await.h"

namespace ferry::testing {

class RawSocket {
 public:
  RawSocket(const std::string& path, int type);
  explicit RawSocket(UniqueFd connected) : socket_(std::move(connected)), connected_(true) {}
  bool connected() const { return connected_; }
  int fd() const { return socket_.get(); }
  // Sends one packet, or a piece of a stream, and the descriptors. False if that failed.
  bool Send(const std::string& bytes, const std::vector<int>& fds = {});
  struct Packet {
    std::string bytes;  // empty: the other end has closed
    std::vector<UniqueFd> fds;
  };
  // The next packet; nothing if none comes in time.
  std::optional<Packet> Receive(std::chrono::milliseconds patience = kSoon);
  // True once the other end has closed; drops what it says before.
  bool AwaitClosed(std::chrono::milliseconds patience = kSoon);
  void Close() { socket_.Reset(); }

 private:
  UniqueFd socket_;
  bool connected_ = false;
};

// A memfd of `bytes` with `seals` (F_SEAL_...).
UniqueFd MakeMemfd(uint64_t bytes, int seals);
int ArenaSeals();

}  // namespace ferry::testing
