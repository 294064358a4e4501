// SPDX-License-Identifier: Apache-2.0
// Client ends of sockets, packets with descriptors, and a temporary directory. One thread.
#pragma once

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/fd.h"

namespace ferry::testing {

// A blocked receive ends after a time that only a hang explains.
inline void SetPatience(int socket) {
  const timeval patience{30, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

struct SocketPair {
  explicit SocketPair(int type = SOCK_SEQPACKET) {
    int fds[2] = {-1, -1};
    FERRY_CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0);
    daemon.Reset(fds[0]);
    client.Reset(fds[1]);
    SetPatience(client.get());
  }
  UniqueFd daemon, client;
};

// Sends one packet and the descriptors. False if that failed.
inline bool SendPacket(int socket, const std::string& bytes, const std::vector<int>& fds = {}) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

struct ReceivedPacket {
  ssize_t size = -1;  // 0: the other end is closed; negative: an error
  std::string bytes;
  std::vector<UniqueFd> fds;
};
inline ReceivedPacket ReceivePacket(int socket) {
  std::string buffer(256 * 1024, '\0');
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ReceivedPacket packet;
  packet.size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (packet.size > 0) packet.bytes = buffer.substr(0, static_cast<size_t>(packet.size));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); packet.size > 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}

// A connected socket; an invalid one if that failed.
inline UniqueFd ConnectUnix(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  SetPatience(socket.get());
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    socket.Reset();
  return socket;
}

// A directory that is removed with its contents.
class Directory {
 public:
  Directory() {
    char path[] = "/tmp/ferryXXXXXX";
    if (mkdtemp(path) != nullptr) path_ = path;
  }
  ~Directory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace ferry::testing
