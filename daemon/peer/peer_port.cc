// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_port.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "transfer/tcp/tcp_wire.h"

namespace ferry {
namespace {

// The first byte of HTTP/2, which begins with "PRI * HTTP/2.0".
constexpr char kFirstOfLink = 'P';
static_assert(kTcpMagic.front() != kFirstOfLink);

}  // namespace

Door::OnAccept ServePeerPort(Door& door, PeerPortHooks hooks) {
  return [&door, hooks = std::move(hooks)](UniqueFd socket, Admission::Pass pass) {
    const int one = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    const auto readable = [&door, hooks, preamble = std::string()](uint64_t id, int fd) mutable {
      char bytes[kTcpPreambleBytes];
      const bool first = preamble.empty();
      const size_t wanted = first ? 1 : kTcpPreambleBytes - preamble.size();
      const ssize_t size = recv(fd, bytes, wanted, first ? MSG_PEEK : 0);
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (size <= 0) return door.Close(id);
      if (first && bytes[0] == kFirstOfLink) {
        auto [link, admitted] = door.Take(id);
        return hooks.link(std::move(link), std::move(admitted));
      }
      if (first && bytes[0] != kTcpMagic.front()) return door.Close(id);
      if (first) recv(fd, bytes, 1, 0);  // the byte was only peeked at
      preamble.append(bytes, static_cast<size_t>(size));
      if (preamble.size() < kTcpPreambleBytes) return;
      auto [data, admitted] = door.Take(id);
      hooks.data(std::move(preamble), std::move(data), std::move(admitted));
    };
    door.AddStream(std::move(socket), kPeerPortPatience, readable, std::move(pass));
  };
}

}  // namespace ferry
