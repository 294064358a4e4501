// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_sets.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/hmac.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr int kEventsAtOnce = 64;

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

TcpSets::TcpSets(GlobalDeviceId device, TcpTransport::Options options, Opened opened, TcpOps& ops,
                 TcpStaging& staging, DueConnections& due)
    : device_(device),
      options_(options),
      opened_(std::move(opened)),
      ops_(ops),
      staging_(staging),
      due_(due),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  FERRY_CHECK(epoll_.valid() && timer_.valid());
  epoll_event event = {};
  event.events = EPOLLIN;
  FERRY_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) == 0);
}

void TcpSets::AddPeer(const TcpPeer& peer) {
  home_.Check();
  for (const GlobalDeviceId device : peer.devices) {
    const TcpDeviceLink::Key key{peer.id, device};
    FERRY_CHECK(!links_.contains(key));  // RemovePeer was before
    auto link = std::make_unique<TcpDeviceLink>();
    link->key = key;
    link->number = peer.link;
    link->peer_name = peer.name;
    link->secret = peer.secret;
    link->id = TcpLinkId(peer.secret);
    link->address = peer.address;
    links_.emplace(key, std::move(link));
  }
}

void TcpSets::RemovePeer(PeerId peer, const absl::Status& why) {
  home_.Check();
  for (auto it = links_.begin(); it != links_.end();) {
    const auto here = it++;
    if (here->first.first != peer) continue;
    TcpDeviceLink& link = *here->second;
    ops_.EndAll(link, why);
    Close(link);
    staging_.Forget(link);
    closed_.clear();  // they refer to the link
    links_.erase(here);
  }
}

TcpDeviceLink* TcpSets::Find(PeerId peer, GlobalDeviceId device) const {
  home_.Check();
  const auto found = links_.find(TcpDeviceLink::Key{peer, device});
  return found == links_.end() ? nullptr : found->second.get();
}

void TcpSets::CloseAll(const absl::Status& why) {
  home_.Check();
  for (auto& [key, link] : links_) {
    ops_.EndAll(*link, why);
    Close(*link);
  }
}

bool TcpSets::Poll() {
  home_.Check();
  epoll_event events[kEventsAtOnce];
  const int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == nullptr) {
      OnTimer();
    } else {
      OnEvent(*static_cast<TcpConnection*>(events[i].data.ptr), events[i].events);
    }
  }
  return count > 0;
}

void TcpSets::Accept(PeerId peer, const TcpPreamble& preamble, UniqueFd socket) {
  home_.Check();
  TcpDeviceLink* const link = Find(peer, preamble.from);
  if (link == nullptr || link->dials() || preamble.link_id != link->id ||
      preamble.serial < link->serial) {
    return;
  }
  if (preamble.serial > link->serial) {
    // The peer has given up the set before.
    if (link->state == TcpDeviceLink::State::kOpen) Fail(*link, "its connections ended");
    Close(*link);
    link->serial = preamble.serial;
    link->state = TcpDeviceLink::State::kOpening;
    for (uint32_t i = 0; i < preamble.count; ++i) {
      link->connections.push_back(std::make_unique<TcpConnection>(*link, i));
    }
    link->open_by = MonotonicNow() + options_.open_deadline;
    SetTimer(link->open_by);
  }
  if (link->state != TcpDeviceLink::State::kOpening || preamble.index >= link->connections.size() ||
      link->connections[preamble.index]->state != TcpConnection::State::kAbsent) {
    return;
  }
  TcpConnection& connection = *link->connections[preamble.index];
  SetOptions(socket.get());
  connection.socket = std::move(socket);
  connection.state = TcpConnection::State::kOpen;
  Watch(connection);
  OpenIfWhole(*link);
}

void TcpSets::Open(TcpDeviceLink& link) {
  home_.Check();
  link.state = TcpDeviceLink::State::kOpening;
  link.open_by = MonotonicNow() + options_.open_deadline;
  SetTimer(link.open_by);
  if (!link.dials()) return;  // the peer does
  ++link.serial;
  for (uint32_t i = 0; i <= options_.bulk_connections; ++i) {
    link.connections.push_back(std::make_unique<TcpConnection>(link, i));
  }
  for (size_t i = 0; i < link.connections.size(); ++i) {
    const absl::Status connecting = Connect(*link.connections[i]);
    if (!connecting.ok()) return FailOpening(link, connecting);
  }
}

absl::Status TcpSets::Connect(TcpConnection& connection) {
  const TcpAddress& to = connection.link.address;
  connection.socket.Reset(
      ::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.socket.valid()) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable, "making a socket",
                      errno);
  }
  SetOptions(connection.socket.get());
  connection.state = TcpConnection::State::kConnecting;
  const int connected =
      connect(connection.socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size);
  if (connected != 0 && errno != EINPROGRESS) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable, "connecting",
                      errno);
  }
  Watch(connection);
  return absl::OkStatus();
}

void TcpSets::Watch(TcpConnection& connection) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &connection;
  FERRY_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) == 0);
}

void TcpSets::OnEvent(TcpConnection& connection, uint32_t events) {
  if (!connection.socket.valid()) return;  // closed since
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) connection.readable = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) connection.ended = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) connection.writable = true;
  if (connection.state == TcpConnection::State::kConnecting && connection.writable) {
    OnConnected(connection);
  }
  if (connection.state == TcpConnection::State::kProving && connection.readable) Prove(connection);
  due_.Mark(connection);
}

void TcpSets::OnConnected(TcpConnection& connection) {
  TcpDeviceLink& link = connection.link;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(connection.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  const std::string preamble =
      EncodeTcpPreamble({link.id, device_, link.key.second, link.serial, connection.index,
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
  connection.state = TcpConnection::State::kProving;
}

void TcpSets::Prove(TcpConnection& connection) {
  TcpDeviceLink& link = connection.link;
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
  connection.state = TcpConnection::State::kOpen;
  OpenIfWhole(link);
}

void TcpSets::Redial(TcpConnection& connection) {
  connection.socket.Reset();
  connection.state = TcpConnection::State::kAbsent;
  connection.readable = connection.writable = connection.ended = false;
  connection.link.redial_at = MonotonicNow() + kRedial;
  SetTimer(connection.link.redial_at);
}

void TcpSets::OpenIfWhole(TcpDeviceLink& link) {
  if (link.state != TcpDeviceLink::State::kOpening ||
      !std::all_of(link.connections.begin(), link.connections.end(), [](const auto& connection) {
        return connection->state == TcpConnection::State::kOpen;
      })) {
    return;
  }
  link.state = TcpDeviceLink::State::kOpen;
  link.open_by = absl::InfiniteFuture();
  for (const auto& connection : link.connections) due_.Mark(*connection);
  if (opened_) opened_(link.key.first, link.number, absl::OkStatus());
}

void TcpSets::FailOpening(TcpDeviceLink& link, absl::Status why) {
  link.refused = Annotate(why, absl::StrCat("route tcp: opening connections with ", link.peer_name,
                                            ", ", link.key.second.ToString()));
  link.retry_at = MonotonicNow() + kRetry;
  Close(link);
  link.said.clear();
  const absl::Status refused = link.refused;
  ops_.EndAll(link, refused);
  if (opened_) opened_(link.key.first, link.number, refused);
}

void TcpSets::Fail(TcpDeviceLink& link, absl::string_view why) {
  home_.Check();
  Close(link);
  link.said.clear();
  ops_.EndAll(link, Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                          absl::StrCat("route tcp: connections with ", link.peer_name, ", ",
                                       link.key.second.ToString(), ": ", why)));
}

void TcpSets::Close(TcpDeviceLink& link) {
  link.state = TcpDeviceLink::State::kClosed;
  link.open_by = link.redial_at = absl::InfiniteFuture();
  for (auto& connection : link.connections) {
    for (TcpOutgoing::OpBytes& part : connection->out.TakeOpBytes()) {
      staging_.GiveBack(std::move(part.chunk));
    }
    for (std::unique_ptr<TcpChunk>& chunk : connection->in.TakeChunks()) {
      staging_.GiveBack(std::move(chunk));
    }
    connection->socket.Reset();  // leaves the epoll set, too
    connection->state = TcpConnection::State::kAbsent;
    due_.Forget(*connection);
    closed_.push_back(std::move(connection));
  }
  link.connections.clear();
}

void TcpSets::SetTimer(absl::Time at) {
  if (at >= timer_at_) return;
  timer_at_ = at;
  itimerspec when = {};
  when.it_value = absl::ToTimespec(std::max(at - MonotonicNow(), absl::Nanoseconds(1)));
  FERRY_CHECK(timerfd_settime(timer_.get(), 0, &when, nullptr) == 0);
}

void TcpSets::OnTimer() {
  uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t ignored = read(timer_.get(), &expirations, sizeof(expirations));
  const absl::Time now = MonotonicNow();
  timer_at_ = absl::InfiniteFuture();
  for (auto& [key, link] : links_) {
    if (link->open_by <= now) {
      FailOpening(*link,
                  Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                        absl::StrCat(link->dials() ? "no answer at its port" : "it has not dialled",
                                     " within ", DurationText(options_.open_deadline))));
    } else if (link->redial_at <= now) {
      link->redial_at = absl::InfiniteFuture();
      for (size_t i = 0; i < link->connections.size(); ++i) {
        if (link->connections[i]->state != TcpConnection::State::kAbsent) continue;
        const absl::Status connecting = Connect(*link->connections[i]);
        if (!connecting.ok()) FailOpening(*link, connecting);  // then there is no connection left
      }
    }
    const absl::Time next = std::min(link->open_by, link->redial_at);
    if (next < absl::InfiniteFuture()) SetTimer(next);
  }
}

}  // namespace ferry
