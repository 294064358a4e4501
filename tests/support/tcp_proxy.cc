// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Bytes of one direction on their way.
struct Stream {
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  int from = -1;
  int to = -1;
  std::deque<Piece> pieces;
  size_t held = 0;
  bool ended = false;  // `from` has no more
  bool shut = false;   // and `to` knows
};

}  // namespace

struct TcpProxy::Pair {
  UniqueFd client;
  UniqueFd server;
  Stream streams[kDirections];
  bool broken = false;
};

TcpProxy::TcpProxy(int target) : target_(target) {
  listener_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  FERRY_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
              listen(listener_.get(), 64) == 0 &&
              getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  wakeup_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  FERRY_CHECK(wakeup_.valid());
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  stop_ = true;
  Wake();
  thread_.join();
}

void TcpProxy::Wake() {
  const uint64_t one = 1;
  FERRY_CHECK(write(wakeup_.get(), &one, sizeof(one)) == sizeof(one));
}

void TcpProxy::Delay(std::chrono::milliseconds least, std::chrono::milliseconds most) {
  least_ms_ = least.count();
  most_ms_ = most.count();
}

void TcpProxy::Silence(Direction direction, bool silent) {
  silent_[direction] = silent;
  Wake();
}

void TcpProxy::Cut() {
  cut_ = true;
  Wake();
}

void TcpProxy::Run() {
  constexpr size_t kMostHeld = 1 << 20;  // then the sender meets a full socket
  std::vector<std::unique_ptr<Pair>> pairs;
  std::mt19937_64 random(1);
  std::string buffer(64 << 10, '\0');
  while (!stop_) {
    std::vector<pollfd> polled = {{wakeup_.get(), POLLIN, 0}};
    if (!silent_[kFromClient]) polled.push_back({listener_.get(), POLLIN, 0});
    Clock::time_point due = Clock::time_point::max();
    for (const auto& pair : pairs) {
      for (int d = 0; d < kDirections; ++d) {
        const Stream& stream = pair->streams[d];
        if (silent_[d]) continue;
        if (!stream.ended && stream.held < kMostHeld) polled.push_back({stream.from, POLLIN, 0});
        if (stream.pieces.empty()) continue;
        if (stream.pieces.front().due <= Clock::now()) {
          polled.push_back({stream.to, POLLOUT, 0});
        } else {
          due = std::min(due, stream.pieces.front().due);
        }
      }
    }
    int timeout = -1;
    if (due != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
      timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    FERRY_CHECK(poll(polled.data(), polled.size(), timeout) >= 0 || errno == EINTR);
    uint64_t ignored = 0;
    [[maybe_unused]] ssize_t drained = read(wakeup_.get(), &ignored, sizeof(ignored));

    if (cut_.exchange(false)) {
      for (const auto& pair : pairs) {  // closed with bytes to linger for no time: a reset
        const linger now{1, 0};
        for (int fd : {pair->client.get(), pair->server.get()})
          setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      }
      pairs.clear();
      continue;
    }
    while (!silent_[kFromClient]) {
      UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) break;
      ++accepted_;
      UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = Loopback(target_);
      // On loopback a connect is answered at once; a server that is not there resets the client.
      if (connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
        continue;
      const int one = 1;
      for (int fd : {client.get(), server.get()})
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      auto pair = std::make_unique<Pair>();
      pair->streams[kFromClient].from = pair->streams[kFromServer].to = client.get();
      pair->streams[kFromServer].from = pair->streams[kFromClient].to = server.get();
      pair->client = std::move(client);
      pair->server = std::move(server);
      pairs.push_back(std::move(pair));
    }
    for (const auto& pair : pairs) {
      for (int d = 0; d < kDirections; ++d) {
        Stream& stream = pair->streams[d];
        if (silent_[d]) continue;
        while (!stream.ended && stream.held < kMostHeld) {
          const ssize_t got = recv(stream.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
          if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
          if (got < 0) pair->broken = true;
          if (got <= 0) {
            stream.ended = true;
            break;
          }
          const int64_t least = least_ms_, most = std::max<int64_t>(most_ms_, least);
          Clock::time_point when =
              Clock::now() +
              std::chrono::milliseconds(
                  least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1)));
          if (!stream.pieces.empty()) when = std::max(when, stream.pieces.back().due);
          stream.pieces.push_back({when, buffer.substr(0, static_cast<size_t>(got))});
          stream.held += static_cast<size_t>(got);
        }
        while (!stream.pieces.empty() && stream.pieces.front().due <= Clock::now()) {
          std::string& bytes = stream.pieces.front().bytes;
          const ssize_t sent =
              send(stream.to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
          if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
          if (sent < 0) {
            pair->broken = true;
            break;
          }
          stream.held -= static_cast<size_t>(sent);
          bytes.erase(0, static_cast<size_t>(sent));
          if (!bytes.empty()) break;
          stream.pieces.pop_front();
        }
        if (stream.ended && stream.pieces.empty() && !std::exchange(stream.shut, true))
          shutdown(stream.to, SHUT_WR);
      }
    }
    std::erase_if(pairs, [](const auto& pair) {
      return pair->broken || (pair->streams[0].shut && pair->streams[1].shut);
    });
  }
}

}  // namespace ferry::testing
