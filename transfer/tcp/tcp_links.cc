// SPDX-License-Identifier: Apache-2.0
// Sets of connections: dialled or accepted, proven, closed.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/status.h"
#include "transfer/tcp/tcp_state.h"

namespace ferry {
namespace {

// How long a peer may leave unanswered what was sent: the connection has ended then, whatever the
// kernel still hopes for. The link of the two daemons mostly knows before.
constexpr absl::Duration kUnanswered = absl::Seconds(10);
// Until a connection that the peer has closed unproven is dialled again.
constexpr absl::Duration kRedial = absl::Milliseconds(20);
// Until a set that could not be opened is tried again.
constexpr absl::Duration kRetry = absl::Seconds(1);

void SetOptions(int socket) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(absl::ToInt64Milliseconds(kUnanswered)));
  // A peer that is gone is found while nothing is sent, too.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
}

}  // namespace

absl::StatusOr<TcpAddress> TcpAddress::Parse(absl::string_view text) {
  const size_t colon = text.rfind(':');
  TcpAddress address;
  uint32_t port = 0;
  if (colon != absl::string_view::npos && absl::SimpleAtoi(text.substr(colon + 1), &port) &&
      port <= 65535) {
    std::string host(text.substr(0, colon));
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(static_cast<uint16_t>(port));
      address.size = sizeof(*v4);
      return address;
    }
    if (host.size() > 2 && host.front() == '[' && host.back() == ']' &&
        inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(static_cast<uint16_t>(port));
      address.size = sizeof(*v6);
      return address;
    }
  }
  return Error(absl::StatusCode::kInvalidArgument, Reason::kRouteUnavailable,
               absl::StrCat("'", text, "' is no address of a host and a port"));
}

TcpTransport::Impl::DeviceLink* TcpTransport::Impl::Find(PeerId peer, GlobalDeviceId remote) {
  const auto found = links.find(LinkKey{peer, remote});
  return found == links.end() ? nullptr : found->second.get();
}

void TcpTransport::AddPeer(TcpPeer peer) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (const GlobalDeviceId device : peer.devices) {
    const Impl::LinkKey key{peer.id, device};
    FERRY_CHECK(!impl_->links.contains(key));  // RemovePeer was before
    auto link = std::make_unique<Impl::DeviceLink>();
    link->owner = impl_.get();
    link->key = key;
    link->number = peer.link;
    link->peer_name = peer.name;
    link->secret = peer.secret;
    link->id = TcpLinkId(peer.secret);
    link->address = peer.address;
    impl_->links.emplace(key, std::move(link));
  }
}

void TcpTransport::RemovePeer(PeerId peer, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (auto it = impl_->links.begin(); it != impl_->links.end();) {
    const auto here = it++;
    if (here->first.first != peer) continue;
    Impl::DeviceLink& link = *here->second;
    impl_->EndOps(link, why);
    impl_->CloseSet(link);
    std::erase(impl_->wanting, &link);
    for (auto& [message, chunk] : impl_->chunks) {
      if (chunk->link == &link) chunk->link = nullptr;
    }
    impl_->closed.clear();  // they refer to the link
    impl_->links.erase(here);
  }
}

void TcpTransport::Open(PeerId peer, GlobalDeviceId device) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  Impl::DeviceLink* const link = impl_->Find(peer, device);
  if (link != nullptr && link->state == Impl::DeviceLink::State::kClosed) impl_->OpenSet(*link);
}

void TcpTransport::Accept(PeerId peer, const TcpPreamble& preamble, UniqueFd socket) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  Impl::DeviceLink* const link = impl_->Find(peer, preamble.from);
  if (link == nullptr || link->dials() || preamble.link_id != link->id ||
      preamble.serial < link->serial) {
    return;
  }
  if (preamble.serial > link->serial) {
    // The peer has given up the set before.
    if (link->state == Impl::DeviceLink::State::kOpen)
      impl_->FailSet(*link, "its connections ended");
    impl_->CloseSet(*link);
    link->serial = preamble.serial;
    link->state = Impl::DeviceLink::State::kOpening;
    for (uint32_t i = 0; i < preamble.count; ++i) {
      link->connections.push_back(std::make_unique<Impl::Connection>(*link, i));
    }
    link->open_by = MonotonicNow() + impl_->options.open_deadline;
    impl_->SetTimer(link->open_by);
  }
  if (link->state != Impl::DeviceLink::State::kOpening ||
      preamble.index >= link->connections.size() ||
      link->connections[preamble.index]->state != Impl::Connection::State::kAbsent) {
    return;
  }
  Impl::Connection& connection = *link->connections[preamble.index];
  SetOptions(socket.get());
  connection.socket = std::move(socket);
  connection.state = Impl::Connection::State::kOpen;
  impl_->Watch(connection);
  impl_->OpenIfWhole(*link);
}

void TcpTransport::Impl::OpenSet(DeviceLink& link) {
  link.state = DeviceLink::State::kOpening;
  link.open_by = MonotonicNow() + options.open_deadline;
  SetTimer(link.open_by);
  if (!link.dials()) return;  // the peer does
  ++link.serial;
  for (uint32_t i = 0; i <= options.bulk_connections; ++i) {
    link.connections.push_back(std::make_unique<Connection>(link, i));
  }
  for (size_t i = 0; i < link.connections.size(); ++i) {
    const absl::Status connecting = Connect(*link.connections[i]);
    if (!connecting.ok()) return FailOpening(link, connecting);
  }
}

absl::Status TcpTransport::Impl::Connect(Connection& connection) {
  const TcpAddress& to = connection.link.address;
  connection.socket.Reset(
      ::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.socket.valid()) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable, "making a socket",
                      errno);
  }
  SetOptions(connection.socket.get());
  connection.state = Connection::State::kConnecting;
  const int connected =
      connect(connection.socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size);
  if (connected != 0 && errno != EINPROGRESS) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable, "connecting",
                      errno);
  }
  Watch(connection);
  return absl::OkStatus();
}

void TcpTransport::Impl::Watch(Connection& connection) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &connection;
  FERRY_CHECK(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) == 0);
}

void TcpTransport::Impl::OnEvent(Connection& connection, uint32_t events) {
  if (!connection.socket.valid()) return;  // closed since
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) connection.readable = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) connection.ended = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) connection.writable = true;
  if (connection.state == Connection::State::kConnecting && connection.writable) {
    OnConnected(connection);
  }
  if (connection.state == Connection::State::kProving && connection.readable) Prove(connection);
  MarkDue(connection);
}

void TcpTransport::Impl::OnConnected(Connection& connection) {
  DeviceLink& link = connection.link;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(connection.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  const std::string preamble =
      EncodeTcpPreamble({link.id, device, link.key.second, link.serial, connection.index,
                         static_cast<uint32_t>(link.connections.size())},
                        link.secret);
  // A new connection has room for so little.
  if (error == 0 && send(connection.socket.get(), preamble.data(), preamble.size(), MSG_NOSIGNAL) !=
                        static_cast<ssize_t>(preamble.size())) {
    error = errno;
  }
  if (error != 0) {
    return FailOpening(link, ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                                        "connecting", error));
  }
  connection.answer = TcpAnswer(preamble, link.secret);
  connection.state = Connection::State::kProving;
}

void TcpTransport::Impl::Prove(Connection& connection) {
  DeviceLink& link = connection.link;
  char answer[kHmacBytes];
  const ssize_t got = recv(connection.socket.get(), answer, connection.answer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    connection.readable = false;
    return;
  }
  if (got <= 0) return Redial(connection);
  const auto bytes = static_cast<size_t>(got);
  if (!SameBytes(absl::string_view(answer, bytes),
                 absl::string_view(connection.answer).substr(0, bytes))) {
    return FailOpening(link, Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                                   "who answers there is not the daemon of the link"));
  }
  connection.answer.erase(0, bytes);
  if (!connection.answer.empty()) return;
  connection.state = Connection::State::kOpen;
  OpenIfWhole(link);
}

void TcpTransport::Impl::Redial(Connection& connection) {
  connection.socket.Reset();
  connection.state = Connection::State::kAbsent;
  connection.readable = connection.writable = connection.ended = false;
  connection.link.redial_at = MonotonicNow() + kRedial;
  SetTimer(connection.link.redial_at);
}

void TcpTransport::Impl::OpenIfWhole(DeviceLink& link) {
  if (link.state != DeviceLink::State::kOpening ||
      !std::all_of(link.connections.begin(), link.connections.end(), [](const auto& connection) {
        return connection->state == Connection::State::kOpen;
      })) {
    return;
  }
  link.state = DeviceLink::State::kOpen;
  link.open_by = absl::InfiniteFuture();
  for (const auto& connection : link.connections) MarkDue(*connection);
  if (hooks.opened) hooks.opened(link.key.first, link.number, absl::OkStatus());
}

void TcpTransport::Impl::FailOpening(DeviceLink& link, absl::Status why) {
  link.refused = Annotate(why, absl::StrCat("route tcp: opening connections with ", link.peer_name,
                                            ", ", link.key.second.ToString()));
  link.retry_at = MonotonicNow() + kRetry;
  CloseSet(link);
  link.said.clear();
  const absl::Status refused = link.refused;
  EndOps(link, refused);
  if (hooks.opened) hooks.opened(link.key.first, link.number, refused);
}

void TcpTransport::Impl::FailSet(DeviceLink& link, absl::string_view why) {
  CloseSet(link);
  link.said.clear();
  EndOps(link, Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                     absl::StrCat("route tcp: connections with ", link.peer_name, ", ",
                                  link.key.second.ToString(), ": ", why)));
}

void TcpTransport::Impl::CloseSet(DeviceLink& link) {
  link.state = DeviceLink::State::kClosed;
  link.open_by = link.redial_at = absl::InfiniteFuture();
  for (auto& connection : link.connections) {
    for (Outgoing::OpBytes& part : connection->out.op_bytes) GiveBack(std::move(part.chunk));
    for (Incoming::Part& part : connection->in.parts) GiveBack(std::move(part.chunk));
    connection->socket.Reset();  // leaves the epoll set, too
    connection->state = Connection::State::kAbsent;
    connection->due = false;
    std::erase(due, connection.get());
    std::erase(starved, connection.get());
    closed.push_back(std::move(connection));
  }
  link.connections.clear();
}

void TcpTransport::Impl::EndOps(DeviceLink& link, const absl::Status& status) {
  std::vector<Op*> ending;
  for (const auto& [key, op] : ops) {
    if (op->link == &link && !op->ended) ending.push_back(op.get());
  }
  for (Op* const op : ending) End(*op, status);
}

void TcpTransport::Impl::SetTimer(absl::Time at) {
  if (at >= timer_at) return;
  timer_at = at;
  itimerspec when = {};
  when.it_value = absl::ToTimespec(std::max(at - MonotonicNow(), absl::Nanoseconds(1)));
  FERRY_CHECK(timerfd_settime(timer.get(), 0, &when, nullptr) == 0);
}

void TcpTransport::Impl::OnTimer() {
  uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t ignored = read(timer.get(), &expirations, sizeof(expirations));
  const absl::Time now = MonotonicNow();
  timer_at = absl::InfiniteFuture();
  for (auto& [key, link] : links) {
    if (link->open_by <= now) {
      FailOpening(*link,
                  Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                        absl::StrCat(link->dials() ? "no answer at its port" : "it has not dialled",
                                     " within ", DurationText(options.open_deadline))));
    } else if (link->redial_at <= now) {
      link->redial_at = absl::InfiniteFuture();
      for (size_t i = 0; i < link->connections.size(); ++i) {
        if (link->connections[i]->state != Connection::State::kAbsent) continue;
        const absl::Status connecting = Connect(*link->connections[i]);
        if (!connecting.ok()) FailOpening(*link, connecting);  // then there is no connection left
      }
    }
    const absl::Time next = std::min(link->open_by, link->redial_at);
    if (next < absl::InfiniteFuture()) SetTimer(next);
  }
}

}  // namespace ferry
