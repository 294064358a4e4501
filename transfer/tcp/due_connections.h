// SPDX-License-Identifier: Apache-2.0
// DueConnections has the connections of a lane that are to be looked at: those that may read or
// write, and those that are starved, which read on when there may be memory to receive into. Only
// connections of open sets become due.
//
// Home: the lane. Owner: TcpTransport. Owns no connection: who closes one forgets it here.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/home.h"
#include "transfer/tcp/tcp_device_link.h"

namespace ferry {

class DueConnections {
 public:
  // The connection can read, or can write and has something to write.
  void Mark(TcpConnection& connection) {
    home_.Check();
    if (connection.link.state != TcpDeviceLink::State::kOpen ||
        std::exchange(connection.due, true)) {
      return;
    }
    due_.push_back(&connection);
  }
  // Marks the link's connections that carry small, or large, ops.
  void Mark(TcpDeviceLink& link, bool small) {
    if (link.state != TcpDeviceLink::State::kOpen) return;
    if (small) return Mark(*link.connections.front());
    for (size_t i = 1; i < link.connections.size(); ++i) Mark(*link.connections[i]);
  }
  // The connection reads no more until FeedStarved().
  void Starve(TcpConnection& connection) {
    home_.Check();
    if (!std::exchange(connection.waiting, true)) starved_.push_back(&connection);
  }
  // The connection reads on: there is something to look at, whatever its socket has.
  void ReadOn(TcpConnection& connection) {
    connection.waiting = false;
    connection.readable = true;
    Mark(connection);
  }
  void FeedStarved() {
    home_.Check();
    for (TcpConnection* const connection : std::exchange(starved_, {})) ReadOn(*connection);
  }
  // The connection is being closed.
  void Forget(TcpConnection& connection) {
    home_.Check();
    connection.due = false;
    std::erase(due_, &connection);
    std::erase(starved_, &connection);
  }

  // Takes the due connections out. One of which `due` is false has been closed since.
  std::vector<TcpConnection*> Take() {
    home_.Check();
    return std::exchange(due_, {});
  }
  bool empty() const { return due_.empty(); }  // of due ones; starved ones do not count

 private:
  std::vector<TcpConnection*> due_;
  std::vector<TcpConnection*> starved_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
