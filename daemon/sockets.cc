// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/door.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace ferry {
namespace {

// Accepted connections inherit it. Older kernels do not know it.
void RefuseDescriptors(int listener) {
  const int off = 0;
  setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

int SocketOption(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

struct End {
  uint32_t address[4] = {};
  uint16_t port = 0;  // in network byte order
};
End EndOf(const sockaddr_storage& from) {
  End end;
  if (from.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(from);
    end.address[0] = four.sin_addr.s_addr;
    end.port = four.sin_port;
  } else {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(from);
    memcpy(end.address, &six.sin6_addr, sizeof(end.address));
    end.port = six.sin6_port;
  }
  return end;
}

// The uid at the other end of a TCP connection within this host and network namespace. Nothing if
// the other end is elsewhere, has been closed, or the kernel does not say.
std::optional<uid_t> UserOfThisHost(int socket, const sockaddr_storage& theirs) {
  sockaddr_storage ours{};
  socklen_t size = sizeof(ours);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&ours), &size) != 0) return std::nullopt;
  const End here = EndOf(ours), there = EndOf(theirs);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(there.address);
  const bool loopback = theirs.ss_family == AF_INET && bytes[0] == 127;
  if (!loopback && memcmp(here.address, there.address, sizeof(here.address)) != 0) {
    return std::nullopt;
  }
  struct {
    nlmsghdr header;
    inet_diag_req_v2 body;
  } ask{};
  ask.header.nlmsg_len = sizeof(ask);
  ask.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  ask.header.nlmsg_flags = NLM_F_REQUEST;
  ask.body.sdiag_family = static_cast<uint8_t>(theirs.ss_family);
  ask.body.sdiag_protocol = IPPROTO_TCP;
  ask.body.idiag_states = ~0u;
  // The connection as the other end sees it.
  ask.body.id.idiag_sport = there.port;
  ask.body.id.idiag_dport = here.port;
  memcpy(ask.body.id.idiag_src, there.address, sizeof(there.address));
  memcpy(ask.body.id.idiag_dst, here.address, sizeof(here.address));
  ask.body.id.idiag_cookie[0] = ask.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const UniqueFd netlink(
      ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
  alignas(nlmsghdr) char answer[1024];
  if (!netlink.valid() || send(netlink.get(), &ask, sizeof(ask), 0) != sizeof(ask)) {
    return std::nullopt;
  }
  // The kernel has answered while the request was sent.
  const ssize_t length = recv(netlink.get(), answer, sizeof(answer), 0);
  const auto* const header = reinterpret_cast<const nlmsghdr*>(answer);
  if (length < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) ||
      header->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
    return std::nullopt;
  }
  const auto* const found = reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  if (found->idiag_state != TCP_ESTABLISHED) return std::nullopt;  // it belongs to nobody any more
  return found->idiag_uid;
}

}  // namespace

absl::StatusOr<Credentials> PeerCredentials(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal,
                      "read a connection's credentials", errno);
  }
  return Credentials{credentials.pid, credentials.uid, credentials.gid};
}

absl::StatusOr<Visitor> VisitorOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kInternal,
                      "read a connection's address", errno);
  }
  Visitor visitor;
  if (address.ss_family == AF_UNIX) {
    ASSIGN_OR_RETURN(const Credentials credentials, PeerCredentials(socket));
    visitor.uid = credentials.uid;
    visitor.name = absl::StrCat("uid ", credentials.uid);
    return visitor;
  }
  // Users of this host share its addresses.
  std::string whose;
  if (const std::optional<uid_t> uid = UserOfThisHost(socket, address)) {
    whose = absl::StrCat(" of uid ", *uid);
  }
  char text[INET6_ADDRSTRLEN] = {};
  auto& six = *reinterpret_cast<sockaddr_in6*>(&address);
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&address)->sin_addr, text, sizeof(text));
    visitor.name = text;
  } else if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) || IN6_IS_ADDR_LOOPBACK(&six.sin6_addr)) {
    inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
    visitor.name = text;
  } else {  // whoever has one address of such a network may have all
    memset(six.sin6_addr.s6_addr + 8, 0, 8);
    inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
    visitor.name = absl::StrCat(text, "/64");
  }
  visitor.name += whose;
  return visitor;
}

UniqueFd PeerPidFd(int socket, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return UniqueFd(fd);
  if (pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, int type, SocketAccess access,
                                    Descriptors descriptors) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
                 absl::StrCat("listen on ", path, ": a socket path has at most ",
                              sizeof(address.sun_path) - 1, " bytes, this one ", path.size(),
                              "; choose a shorter node.runtime_dir"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  const auto failed = [&](const char* what) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kInternal,
                      absl::StrCat("listen on ", path, ": ", what), errno);
  };
  // A socket file on which somebody still answers belongs to another daemon.
  {
    UniqueFd probe(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ||
        errno == EAGAIN) {
      return Error(
          absl::StatusCode::kAlreadyExists, Reason::kConfigInvalid,
          absl::StrCat(
              "listen on ", path,
              ": another daemon serves this runtime directory; stop it or choose another"));
    }
  }
  unlink(path.c_str());
  UniqueFd listener(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return failed("socket");
  if (descriptors == Descriptors::kRefused) RefuseDescriptors(listener.get());
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return failed("bind");
  }
  const bool given_away =
      access.owner != SocketAccess::kOwnUser || access.group != SocketAccess::kOwnGroup;
  if (given_away && lchown(path.c_str(), access.owner, access.group) != 0) {
    return Error(
        absl::StatusCode::kPermissionDenied, Reason::kConfigInvalid,
        absl::StrCat("change owner and group of ", path, ": ", strerror(errno),
                     "; sockets.*.owner needs a daemon of root's, sockets.*.group one that "
                     "is in the group"));
  }
  if (chmod(path.c_str(), access.mode) != 0) return failed("chmod");
  if (listen(listener.get(), 1024) != 0) return failed("listen");
  return listener;
}

absl::StatusOr<UniqueFd> AdoptUnix(UniqueFd given, const char* name, const std::string& path,
                                   int type, Descriptors descriptors) {
  const auto wrong = [&](absl::string_view why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
                 absl::StrCat("take the socket '", name, "' that was given: ", why));
  };
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  if (getsockname(given.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return wrong(strerror(errno));
  }
  if (address.sun_family != AF_UNIX || SocketOption(given.get(), SO_TYPE) != type ||
      SocketOption(given.get(), SO_ACCEPTCONN) != 1) {
    return wrong(absl::StrCat(
        "it is not a Unix socket that listens for ",
        type == SOCK_STREAM ? "streams (ListenStream=)" : "packets (ListenSequentialPacket=)"));
  }
  const std::string place(address.sun_path,
                          strnlen(address.sun_path, size - offsetof(sockaddr_un, sun_path)));
  std::error_code ignored;
  if (place != path && !std::filesystem::equivalent(place, path, ignored)) {
    return wrong(absl::StrCat("it is at ", Printable(place),
                              ", and by node.runtime_dir who looks "
                              "for it looks at ",
                              path, "; make them the same"));
  }
  fcntl(given.get(), F_SETFD, FD_CLOEXEC);
  fcntl(given.get(), F_SETFL, fcntl(given.get(), F_GETFL) | O_NONBLOCK);
  if (descriptors == Descriptors::kRefused) RefuseDescriptors(given.get());
  return given;
}

namespace {

struct ListenAddress {
  sockaddr_storage address{};
  socklen_t size = 0;
};

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
                 absl::StrCat("listen on '", text, "': not of the form address:port"));
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  ListenAddress parsed;
  auto* four = reinterpret_cast<sockaddr_in*>(&parsed.address);
  auto* six = reinterpret_cast<sockaddr_in6*>(&parsed.address);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    parsed.size = sizeof(*four);
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    parsed.size = sizeof(*six);
  } else {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
                 absl::StrCat("listen on '", text, "': '", host, "' is not an IP address"));
  }
  return parsed;
}

UniqueFd StreamSocket(const ListenAddress& to) {
  return UniqueFd(socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool Bind(const UniqueFd& socket, const ListenAddress& to) {
  return bind(socket.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) == 0;
}

}  // namespace

absl::Status CheckListen(const char* setting, const std::string& text) {
  ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
  const UniqueFd probe = StreamSocket(address);
  const int one = 1;
  setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (probe.valid() && (Bind(probe, address) || errno == EADDRINUSE)) return absl::OkStatus();
  return ErrnoError(absl::StatusCode::kUnavailable, Reason::kConfigInvalid,
                    absl::StrCat(setting, ": '", text, "' cannot be listened on"), errno);
}

absl::StatusOr<UniqueFd> ListenTcp(const std::string& text) {
  ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
  UniqueFd listener = StreamSocket(address);
  const int one = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (!listener.valid() || !Bind(listener, address) || listen(listener.get(), 1024) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kConfigInvalid,
                      absl::StrCat("listen on ", text), errno);
  }
  return listener;
}

int BoundPort(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace ferry
