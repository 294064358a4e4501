// SPDX-License-Identifier: Apache-2.0
// Does to a TCP connection what a network may do, unknown to client and server: delay, stalls (what
// loss looks like above TCP), silence in one direction or both, and cuts. A direction is named by
// where its bytes come from: the side that connected, or the server. Settings are for any thread; a
// thread of the proxy's own moves the bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/fd.h"

namespace ferry::testing {

class TcpProxy {
 public:
  enum Direction { kFromClient, kFromServer, kDirections };

  // Listens on a port of its own. For each connection it connects to port `target` of 127.0.0.1.
  explicit TcpProxy(int target);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  int port() const { return port_; }
  // Holds every piece of bytes back for `least` to `most`; the order stays.
  void Delay(std::chrono::milliseconds least, std::chrono::milliseconds most);
  // With true, bytes of this direction stay where they are; so do new connections, if it is the
  // client's direction. Neither end is told.
  void Silence(Direction direction, bool silent);
  // Resets all connections.
  void Cut();
  uint64_t connections() const { return accepted_; }  // accepted so far

 private:
  struct Pair;
  void Run();
  void Wake();

  const int target_;
  int port_ = 0;
  UniqueFd listener_;
  UniqueFd wakeup_;
  std::atomic<int64_t> least_ms_ = 0;
  std::atomic<int64_t> most_ms_ = 0;
  std::atomic<bool> silent_[kDirections] = {false, false};
  std::atomic<bool> cut_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> accepted_ = 0;
  std::thread thread_;
};

}  // namespace ferry::testing
