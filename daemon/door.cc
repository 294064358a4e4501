// SPDX-License-Identifier: Apache-2.0
#include "daemon/door.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {

struct Door::Entry {
  enum class Kind { kListener, kPackets, kStream };
  Kind kind = Kind::kListener;
  uint64_t id = 0;
  std::string name;
  UniqueFd fd;
  UniqueFd process;
  OnAccept on_accept;
  OnPacket on_packet;
  OnClosed on_closed;
  std::function<void(ConnectionId, int)> readable;
  Admission* admission = nullptr;
  std::function<std::string(const absl::Status&)> farewell;
  // For a listener: since when newcomers wait for seats that are being left.
  absl::Time being_left = absl::InfiniteFuture();
  Admission::Pass pass;
  // Closes the socket on a Closer's thread, because descriptors may still be in its queue. The
  // connection keeps its seat until it is closed.
  ~Entry() {
    if (kind == Kind::kListener || !fd.valid()) return;
    const uid_t uid = pass.uid();
    Closer::Get().Close(uid, std::move(fd), [seat = std::move(pass)] {});
  }

  // What the connection did not take yet. As long as there is any, nothing is read from it.
  Mutex sending;
  std::deque<std::string> unsent ABSL_GUARDED_BY(sending);
  size_t unsent_bytes ABSL_GUARDED_BY(sending) = 0;
};

namespace {
// epoll's data: the entry's id, and whether the event is of its process descriptor.
constexpr uint64_t kProcessBit = uint64_t{1} << 63;
constexpr uint64_t kWakeData = 0;
// SCM_MAX_FD: with room for this many, no descriptor is lost.
constexpr size_t kKernelsMaxFds = 253;

void AddToEpoll(int epoll, int fd, uint64_t data) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = data;
  FERRY_CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

// Watches `events` of the entry from here on; does nothing if its descriptor is not watched any
// more.
void WatchFor(int epoll, int fd, uint64_t data, uint32_t events) {
  epoll_event event{};
  event.events = events | EPOLLRDHUP;
  event.data.u64 = data;
  epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
}

// Sends one packet without waiting. False, with errno, if that was not possible.
bool SendNow(int socket, const std::string& bytes, const std::vector<int>& fds) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * Door::kMaxFds)] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}
}  // namespace

Door::Door()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  FERRY_CHECK(epoll_.valid() && wake_.valid() && spare_.valid());
  AddToEpoll(epoll_.get(), wake_.get(), kWakeData);
  thread_ = std::thread([this] { Run(); });
}

Door::~Door() { Stop(); }

void Door::Stop() {
  if (!stopping_.exchange(true)) {
    const uint64_t one = 1;
    FERRY_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one));
    thread_.join();
    home_.End();
  }
  MutexLock lock(mutex_);
  entries_.clear();
}

uint64_t Door::Add(std::unique_ptr<Entry> entry) {
  std::shared_ptr<Entry> shared = std::move(entry);
  MutexLock lock(mutex_);
  shared->id = next_id_++;
  entries_[shared->id] = shared;
  AddToEpoll(epoll_.get(), shared->fd.get(), shared->id);
  if (shared->process.valid())
    AddToEpoll(epoll_.get(), shared->process.get(), shared->id | kProcessBit);
  return shared->id;
}

std::shared_ptr<Door::Entry> Door::Find(uint64_t id) const {
  MutexLock lock(mutex_);
  auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second;
}

void Door::Listen(std::string name, UniqueFd listener, OnAccept on_accept, Admission* admission,
                  std::function<std::string(const absl::Status&)> farewell) {
  auto entry = std::make_unique<Entry>();
  entry->kind = Entry::Kind::kListener;
  entry->name = std::move(name);
  entry->fd = std::move(listener);
  entry->on_accept = std::move(on_accept);
  entry->admission = admission;
  entry->farewell = std::move(farewell);
  Add(std::move(entry));
}

Door::ConnectionId Door::AddPackets(UniqueFd socket, UniqueFd process, OnPacket on_packet,
                                    OnClosed on_closed, Admission::Pass pass) {
  auto entry = std::make_unique<Entry>();
  entry->kind = Entry::Kind::kPackets;
  entry->fd = std::move(socket);
  entry->process = std::move(process);
  entry->on_packet = std::move(on_packet);
  entry->on_closed = std::move(on_closed);
  entry->pass = std::move(pass);
  return Add(std::move(entry));
}

Door::ConnectionId Door::AddStream(UniqueFd socket, absl::Duration patience,
                                   std::function<void(ConnectionId, int fd)> readable,
                                   Admission::Pass pass) {
  auto entry = std::make_unique<Entry>();
  entry->kind = Entry::Kind::kStream;
  entry->fd = std::move(socket);
  entry->readable = std::move(readable);
  entry->pass = std::move(pass);
  entry->process = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec when{};
  when.it_value = absl::ToTimespec(patience);
  timerfd_settime(entry->process.get(), 0, &when, nullptr);
  const ConnectionId id = Add(std::move(entry));
  MayGiveWay(id);
  return id;
}

void Door::MayGiveWay(ConnectionId id) {
  if (const std::shared_ptr<Entry> entry = Find(id)) {
    entry->pass.MayGiveWay([this, id] { Close(id); });
  }
}

std::pair<UniqueFd, Admission::Pass> Door::Take(ConnectionId id) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return {};
  const std::shared_ptr<Entry> entry = std::move(found->second);
  entries_.erase(found);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->fd.get(), nullptr);
  entry->pass.Stays();
  return {std::move(entry->fd), std::move(entry->pass)};
}

bool Door::Send(ConnectionId id, const std::string& bytes, const std::vector<int>& fds) {
  const std::shared_ptr<Entry> entry = Find(id);
  if (entry == nullptr) return false;
  FERRY_CHECK(fds.size() <= kMaxFds);
  MutexLock lock(entry->sending);
  if (entry->unsent.empty()) {
    if (SendNow(entry->fd.get(), bytes, fds)) return true;
    if (errno != EAGAIN) return false;
  }
  if (!fds.empty() || entry->unsent_bytes + bytes.size() > kMaxUnsent) return false;
  entry->unsent.push_back(bytes);
  entry->unsent_bytes += bytes.size();
  if (entry->unsent.size() == 1) WatchFor(epoll_.get(), entry->fd.get(), id, EPOLLOUT);
  return true;
}

void Door::SendUnsent(Entry& entry) {
  MutexLock lock(entry.sending);
  while (!entry.unsent.empty()) {
    // Any other error than "full" ends the connection; reading from it will show that.
    if (!SendNow(entry.fd.get(), entry.unsent.front(), {}) && errno == EAGAIN) return;
    entry.unsent_bytes -= entry.unsent.front().size();
    entry.unsent.pop_front();
  }
  WatchFor(epoll_.get(), entry.fd.get(), entry.id, EPOLLIN);
}

void Door::Close(ConnectionId id) {
  MutexLock lock(mutex_);
  auto it = entries_.find(id);
  if (it == entries_.end()) return;
  // The other end sees the connection's end now, whoever still holds the entry.
  shutdown(it->second->fd.get(), SHUT_RDWR);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second->fd.get(), nullptr);
  entries_.erase(it);
}

void Door::Finish(ConnectionId id) {
  if (const std::shared_ptr<Entry> entry = Find(id)) shutdown(entry->fd.get(), SHUT_RDWR);
}

size_t Door::connections() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

void Door::Run() {
  const AtHome at(home_);
  pthread_setname_np(pthread_self(), home_.name().c_str());
  epoll_event events[64];
  while (!stopping_.load()) {
    const int patience = resting_.empty() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(kRest));
    const int count = epoll_wait(epoll_.get(), events, std::size(events), patience);
    if (!resting_.empty() && MonotonicNow() >= rest_ends_) EndRest();
    absl::InlinedVector<std::shared_ptr<Entry>, 8> newcomers;
    for (int i = 0; i < count && !stopping_.load(); ++i) {
      const uint64_t data = events[i].data.u64;
      if (data == kWakeData) continue;
      std::shared_ptr<Entry> entry = Find(data & ~kProcessBit);
      if (entry == nullptr) continue;
      if (data & kProcessBit) {
        DropClosed(entry->id);
      } else if (entry->kind == Entry::Kind::kListener) {
        newcomers.push_back(std::move(entry));  // connections that exist come first
      } else if (entry->kind == Entry::Kind::kStream) {
        entry->readable(entry->id, entry->fd.get());
      } else {
        if (events[i].events & EPOLLOUT) SendUnsent(*entry);
        if (events[i].events & ~uint32_t{EPOLLOUT}) Read(entry);
      }
    }
    for (const std::shared_ptr<Entry>& listener : newcomers) {
      if (!stopping_.load()) Accept(*listener);
    }
  }
}

void Door::Accept(Entry& entry) {
  if (!spare_.valid()) return Rest(entry);  // another listener waits for the spare descriptor too
  // A refused connection that is not closed yet has a descriptor that no bound of open connections
  // counts.
  if (*closing_ >= kMostClosing) return Rest(entry);
  bool refused = false;
  for (int budget = kAcceptsAtOnce; budget > 0; --budget) {
    if (WaitsForSeats(entry)) return Rest(entry);
    UniqueFd connection(accept4(entry.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      refused |= !Welcome(entry, std::move(connection));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      RefuseForFds(entry);
      return Rest(entry);
    }
    return;
  }
  // Refusing must not take the time of those that are connected.
  if (refused) Rest(entry);
}

// Connections are closed by other threads, later than the next newcomer comes to the door.
bool Door::WaitsForSeats(Entry& listener) {
  if (listener.admission == nullptr || !listener.admission->BeingLeft()) {
    listener.being_left = absl::InfiniteFuture();
    return false;
  }
  const absl::Time now = MonotonicNow();
  listener.being_left = std::min(listener.being_left, now);
  return now - listener.being_left < kLeavingTime;
}

bool Door::Welcome(Entry& listener, UniqueFd connection) {
  if (listener.admission == nullptr) {
    listener.on_accept(std::move(connection), Admission::Pass());
    return true;
  }
  const absl::StatusOr<Visitor> visitor = VisitorOf(connection.get());
  if (!visitor.ok()) {  // the connection has ended already
    CloseRefused(geteuid(), std::move(connection));
    return false;
  }
  absl::StatusOr<Admission::Pass> pass =
      Closer::Get().Clogged(visitor->uid)
          ? WithRetryAfter(
                Error(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                      absl::StrCat("connect to ", listener.name, ": what ", visitor->name,
                                   " has sent before still waits to be closed")),
                absl::Seconds(1))
          : listener.admission->Admit(*visitor, MonotonicNow());
  if (pass.ok()) {
    listener.on_accept(std::move(connection), *std::move(pass));
    return true;
  }
  FERRY_LOG_LIMITED(warn, "door.refused", "{}", std::string(pass.status().message()));
  if (listener.farewell) SendNow(connection.get(), listener.farewell(pass.status()), {});
  CloseRefused(visitor->uid, std::move(connection));
  return false;
}

void Door::CloseRefused(uid_t uid, UniqueFd connection) {
  shutdown(connection.get(), SHUT_RDWR);
  ++*closing_;
  Closer::Get().Close(uid, std::move(connection), [closing = closing_] { --*closing; });
}

// Accepts with the spare descriptor and closes: the client gets an answer instead of a hang.
void Door::RefuseForFds(Entry& listener) {
  spare_.Reset();
  UniqueFd refused(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (refused.valid()) CloseRefused(geteuid(), std::move(refused));
  const uint64_t count = refused_.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((count & (count - 1)) == 0) {
    FERRY_LOG(warn, "door.no_descriptors",
              "{}: connection refused, no descriptors left ({} so far)", listener.name, count);
  }
}

void Door::Rest(Entry& listener) {
  WatchFor(epoll_.get(), listener.fd.get(), listener.id, 0);
  resting_.push_back(listener.id);
  rest_ends_ = MonotonicNow() + kRest;
}

void Door::EndRest() {
  // The first descriptor that is free again becomes the spare one.
  if (!spare_.valid()) spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!spare_.valid()) {
    rest_ends_ = MonotonicNow() + kRest;
    return;
  }
  for (const uint64_t id : std::exchange(resting_, {})) {
    if (const std::shared_ptr<Entry> entry = Find(id)) {
      WatchFor(epoll_.get(), entry->fd.get(), id, EPOLLIN);
    }
  }
}

void Door::Read(const std::shared_ptr<Entry>& entry) {
  // A few packets at a time, so that one busy client does not keep the door from the others.
  thread_local std::vector<char> buffer(kMaxPacket);
  if (Closer::Get().Clogged(entry->pass.uid())) return DropClosed(entry->id);
  for (int budget = 16; budget > 0; --budget) {
    iovec part{buffer.data(), buffer.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kKernelsMaxFds)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(entry->fd.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size <= 0) return DropClosed(entry->id);
    budget -= static_cast<int>(size >> 13);  // a long packet counts as several
    Packet packet;
    packet.fds = ReceivedFds(entry->pass.uid());
    packet.bytes.assign(buffer.data(), static_cast<size_t>(size));
    packet.truncated = (message.msg_flags & MSG_TRUNC) != 0;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        packet.fds.Add(UniqueFd(fd));
      }
    }
    if (packet.fds.size() > kMaxFds) packet.truncated = true;
    packet.fds_lost = !packet.truncated && (message.msg_flags & MSG_CTRUNC) != 0;
    entry->on_packet(entry->id, std::move(packet));
    if (Find(entry->id) == nullptr) return;
  }
}

void Door::DropClosed(uint64_t id) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(mutex_);
    auto it = entries_.find(id);
    if (it == entries_.end()) return;
    entry = std::move(it->second);
    entries_.erase(it);
  }
  // Processes that still have the other end, or what is in this one's queue, learn of the end now.
  shutdown(entry->fd.get(), SHUT_RDWR);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->fd.get(), nullptr);
  if (entry->on_closed) entry->on_closed(id);
}

}  // namespace ferry
