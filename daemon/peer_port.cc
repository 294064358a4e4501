// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer_port.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <utility>

#include "transfer/tcp/tcp_wire.h"

namespace ferry {
namespace {

// HTTP/2's begins with "PRI * HTTP/2.0".
constexpr char kFirstOfLink = 'P';
static_assert(kTcpMagic.front() != kFirstOfLink);

}  // namespace

Door::OnAccept ServePeerPort(Door& door, PeerPortHooks hooks) {
  auto shared = std::make_shared<PeerPortHooks>(std::move(hooks));
  return [&door, shared](UniqueFd socket) {
    const int one = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    auto preamble = std::make_shared<std::string>();
    door.AddStream(std::move(socket), kPeerPortPatience,
                   [&door, shared, preamble](uint64_t id, int fd) {
                     char bytes[kTcpPreambleBytes];
                     const bool first = preamble->empty();
                     const size_t wanted = first ? 1 : kTcpPreambleBytes - preamble->size();
                     const ssize_t size = recv(fd, bytes, wanted, first ? MSG_PEEK : 0);
                     if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
                     if (size <= 0) return door.Close(id);
                     if (first && bytes[0] == kFirstOfLink) return shared->link(door.Take(id));
                     if (first && bytes[0] != kTcpMagic.front()) return door.Close(id);
                     if (first) recv(fd, bytes, 1, 0);  // was only looked at
                     preamble->append(bytes, static_cast<size_t>(size));
                     if (preamble->size() == kTcpPreambleBytes) {
                       shared->data(std::move(*preamble), door.Take(id));
                     }
                   });
  };
}

}  // namespace ferry
