// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "state.h"

namespace fake_nccl {
namespace {

constexpr auto kLook = std::chrono::microseconds(200);
constexpr int kLookMs = 1;

}  // namespace

void Nap() { std::this_thread::sleep_for(kLook); }

Wire::~Wire() {
  if (fd_ >= 0) close(fd_);
}

bool Wire::Meet(const std::string& path, int rank) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) Story("the path of the unique id is too long");
  memcpy(address.sun_path, path.data(), path.size());
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  if (rank == 0) {
    const int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(door, at, sizeof(address)) != 0) Story("the unique id was used before: " + path);
    listen(door, 1);
    fd_ = door;
    while (!stop_) {
      if (!Ready(false)) break;
      fd_ = accept4(door, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      break;
    }
    if (fd_ == door) fd_ = -1;
    close(door);
    unlink(path.c_str());
    return fd_ >= 0;
  }
  while (!stop_) {
    const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(made, at, sizeof(address)) == 0) {
      fd_ = made;
      return true;
    }
    close(made);
    Nap();
  }
  return false;
}

bool Wire::Ready(bool writing) {
  while (!stop_) {
    pollfd entry = {fd_, static_cast<short>(writing ? POLLOUT : POLLIN), 0};
    if (poll(&entry, 1, kLookMs) > 0) return true;
  }
  return false;
}

bool Wire::Write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = send(fd_, from, bytes, MSG_NOSIGNAL);
    if (done > 0) {
      from += done;
      bytes -= static_cast<size_t>(done);
    } else if (errno != EAGAIN || !Ready(true)) {
      return false;
    }
  }
  return true;
}

bool Wire::Read(void* data, size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = recv(fd_, to, bytes, 0);
    if (done > 0) {
      to += done;
      bytes -= static_cast<size_t>(done);
    } else if (done == 0 || errno != EAGAIN || !Ready(false)) {
      return false;
    }
  }
  return true;
}

bool Wire::Exchange(const void* mine, void* theirs, size_t bytes) {
  return Write(mine, bytes) && Read(theirs, bytes);
}

bool Wire::Move(const std::vector<Operation>& operations) {
  size_t next[2] = {};    // operation, by direction
  uint64_t done[2] = {};  // bytes of it
  const auto current = [&](bool send) -> const Operation* {
    size_t& at = next[send];
    while (at < operations.size() &&
           (operations[at].send != send || done[send] == operations[at].bytes)) {
      if (operations[at].send == send) done[send] = 0;
      ++at;
    }
    return at < operations.size() ? &operations[at] : nullptr;
  };
  while (true) {
    const Operation* const out = current(true);
    const Operation* const in = current(false);
    if (out == nullptr && in == nullptr) return true;
    bool moved = false;
    if (out != nullptr) {
      const ssize_t sent =
          send(fd_, out->memory + done[1], out->bytes - done[1], MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent > 0) done[1] += static_cast<uint64_t>(sent);
      moved = moved || sent > 0;
    }
    if (in != nullptr) {
      const ssize_t got = recv(fd_, in->memory + done[0], in->bytes - done[0], MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
      if (got > 0) done[0] += static_cast<uint64_t>(got);
      moved = moved || got > 0;
    }
    if (moved) continue;
    if (stop_) return false;
    pollfd entry = {
        fd_, static_cast<short>((out != nullptr ? POLLOUT : 0) | (in != nullptr ? POLLIN : 0)), 0};
    poll(&entry, 1, kLookMs);
  }
}

}  // namespace fake_nccl
