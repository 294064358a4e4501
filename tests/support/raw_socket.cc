// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/check.h"

namespace ferry::testing {

RawSocket::RawSocket(const std::string& path, int type)
    : socket_(socket(AF_UNIX, type | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  FERRY_CHECK(socket_.valid() && path.size() < sizeof(address.sun_path));
  memcpy(address.sun_path, path.data(), path.size());
  connected_ = connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

bool RawSocket::Send(const std::string& bytes, const std::vector<int>& fds) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  std::vector<char> control(fds.empty() ? 0 : CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

std::optional<RawSocket::Packet> RawSocket::Receive(std::chrono::milliseconds patience) {
  pollfd readable{socket_.get(), POLLIN, 0};
  if (poll(&readable, 1, static_cast<int>(patience.count())) <= 0) return std::nullopt;
  Packet packet;
  packet.bytes.resize(256 * 1024);
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  iovec data{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  packet.bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
  if (size < 0) return packet;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}

bool RawSocket::AwaitClosed(std::chrono::milliseconds patience) {
  while (std::optional<Packet> packet = Receive(patience)) {
    if (packet->bytes.empty()) return true;
  }
  return false;
}

UniqueFd MakeMemfd(uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("ferry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FERRY_CHECK(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  if (seals != 0) FERRY_CHECK(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

int ArenaSeals() { return F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL; }

}  // namespace ferry::testing
