// SPDX-License-Identifier: Apache-2.0
#include "client/attach.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <vector>

#include "client/timelines.h"

namespace ferry::client {
namespace {

// How long a reader sleeps before it looks at its own deadline again.
constexpr timeval kReadPatience{1, 0};

// How often the daemon is asked whether it is well, and how long it may take to answer.
constexpr int kPingEveryMs = 5000;
constexpr uint64_t kPingPatienceNs = 10ull * 1000000000;

// Waits until `fd` is ready for `events`, or `deadline_ns` has passed (false). Looks at least once.
bool Ready(int fd, short events, uint64_t deadline_ns) {
  while (true) {
    const uint64_t now = NowNs();
    const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    const uint64_t ms = left == 0 ? 0 : std::min<uint64_t>(left / 1000000 + 1, 1000000);
    pollfd entry{fd, events, 0};
    if (poll(&entry, 1, static_cast<int>(ms)) > 0) return true;
    if (left == 0) return false;
  }
}

// The daemon welcomes us in a version that we did not say that we speak.
StatusPtr OtherVersion(const std::string& doing, uint32_t theirs) {
  const std::string newest = std::to_string(kProtocol);
  const std::string ours = kOldestProtocol == kProtocol
                               ? "version " + newest
                               : "versions " + std::to_string(kOldestProtocol) + " to " + newest;
  return Error(kFailedPrecondition, kReasonProtocolVersion,
               doing + ": the daemon speaks version " + std::to_string(theirs) +
                   " of the protocol with clients, this libferry (" FERRY_VERSION ") speaks " +
                   ours +
                   (theirs < kOldestProtocol
                        ? "; the daemon is the older one: update ferryd"
                        : "; the library is the older one: update libferry, or the program that "
                          "has its own"));
}

struct Packet {
  std::string_view bytes;  // in the buffer; empty: no packet came, or `closed`
  std::vector<int> fds;
  bool closed = false;  // the other end has closed
};

// Reads one packet into `buffer`. An error means that the socket was closed abruptly.
StatusPtr Receive(int fd, int flags, char* buffer, Packet* packet) {
  iovec part{buffer, kMaxPacket};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | flags);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return nullptr;
  if (size < 0) {
    return ErrnoError(kUnavailable, kReasonDaemonLost, "reading from the daemon", errno);
  }
  packet->bytes = {buffer, static_cast<size_t>(size)};
  packet->closed = size == 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet->fds.push_back(received);
    }
  }
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    return Error(kInternal, kReasonProtocol,
                 "reading from the daemon: a packet of more than 131072 bytes or 4 descriptors");
  }
  return nullptr;
}

void CloseAll(std::vector<int>* fds) {
  for (int fd : *fds) close(fd);
  fds->clear();
}

StatusPtr NoDaemon(const std::string& path, int error) {
  const std::string doing = "connecting to " + path;
  const std::string cause = std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ECONNREFUSED:
      return Error(kUnavailable, kReasonNotReady,
                   doing +
                       ": no daemon listens there (is ferryd running on this node, and is this "
                       "its client directory: its runtime directory, plus /client?)");
    case EACCES:
    case EPERM:
      return Error(kPermissionDenied, kReasonNotAllowed,
                   doing + ": " + cause + "; this user may not use the daemon's client directory");
    case EAGAIN:
    case EINPROGRESS:
      return Error(kDeadlineExceeded, kReasonNotReady,
                   doing + ": the daemon does not accept connections (stopped or overloaded?)");
    default:
      return ErrnoError(kUnavailable, kReasonNotReady, doing, error);
  }
}

}  // namespace

StatusPtr ConnectUnix(const std::string& dir, const char* name, int type, ForkFds* fds,
                      ForkFds::Which which, uint64_t deadline_ns, int* fd) {
  const std::string path = dir + "/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return BadField("connecting to " + path, "options.client_dir",
                    "is too long: the path of its socket has " + std::to_string(path.size()) +
                        " bytes, and may have 107 at most; use a shorter client directory");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  *fd = fds->Socket(which, type);
  if (*fd < 0) {
    return ErrnoError(kResourceExhausted, kReasonNotReady, "making a socket for " + path, errno);
  }
  const uint64_t now = NowNs();
  const uint64_t left = deadline_ns > now ? deadline_ns - now : 1;
  timeval timeout{static_cast<time_t>(std::min<uint64_t>(left / 1000000000, 1000000)),
                  static_cast<suseconds_t>(left % 1000000000 / 1000 + 1) % 1000000};
  setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  int result;
  do {
    result = connect(*fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    const int error = errno;
    fds->Close(which);
    return NoDaemon(path, error);
  }
  timeout = {};
  setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  return nullptr;
}

AttachSocket::~AttachSocket() { Stop(); }

StatusPtr AttachSocket::Connect(const std::string& dir, uint64_t deadline_ns) {
  int fd;
  FERRY_CLIENT_RETURN_IF_ERROR(
      ConnectUnix(dir, "attach.sock", SOCK_SEQPACKET, fds_, ForkFds::kAttach, deadline_ns, &fd));
  std::lock_guard lock(mutex_);
  if (closed_) return Error(kUnavailable, kReasonDaemonLost, "connecting to " + dir + ": " + why_);
  fd_ = fd;
  return nullptr;
}

StatusPtr AttachSocket::SayHello(const std::string& dir, const std::string& name,
                                 uint64_t deadline_ns, const Resumption* resume, Welcome* welcome,
                                 int* memfd, int* doorbell) {
  const std::string doing = "opening a session at " + dir;
  const uint64_t sequence = NextSequence();
  FERRY_CLIENT_RETURN_IF_ERROR(Send(EncodeHello(sequence, name, resume),
                                    std::span<const int>(memfd, resume != nullptr ? 1u : 0u),
                                    deadline_ns));
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kReadPatience, sizeof(kReadPatience));
  if (!Ready(fd_, POLLIN, deadline_ns)) {
    return Error(kDeadlineExceeded, kReasonNotReady, doing + ": the daemon did not answer in time");
  }
  Packet packet;
  AttachResponse response;
  StatusPtr error = Receive(fd_, 0, buffer_.get(), &packet);
  if (error == nullptr && packet.closed) {
    error = Error(kUnavailable, kReasonDaemonLost, doing + ": the daemon closed the connection");
  }
  if (error == nullptr && !DecodeAttachResponse(packet.bytes, &response)) {
    error = Error(kInternal, kReasonProtocol, doing + ": the daemon's answer is no message");
  }
  if (error == nullptr && response.error != nullptr) error = std::move(response.error);
  const bool welcomed =
      response.kind == AttachResponse::Kind::kWelcome && response.sequence == sequence;
  if (error == nullptr && welcomed &&
      (response.welcome.protocol < kOldestProtocol || response.welcome.protocol > kProtocol)) {
    error = OtherVersion(doing, response.welcome.protocol);
  }
  // The memfd of a new session; and the doorbell, which a daemon without eventfds does not send.
  const size_t most = resume != nullptr ? 1 : 2;
  if (error == nullptr && (!welcomed || packet.fds.size() > most || packet.fds.size() + 1 < most)) {
    error = Error(kInternal, kReasonProtocol,
                  doing + ": the daemon's answer is not a welcome with its descriptors");
  }
  if (error != nullptr) {
    CloseAll(&packet.fds);
    return error;
  }
  *welcome = std::move(response.welcome);
  if (resume == nullptr) *memfd = packet.fds[0];
  *doorbell = packet.fds.size() == most ? packet.fds.back() : -1;
  return nullptr;
}

void AttachSocket::Break(const std::string& why) {
  std::lock_guard lock(mutex_);
  End(why);
}

bool AttachSocket::broken() {
  std::lock_guard lock(mutex_);
  return closed_ || (fd_ >= 0 && Ready(fd_, POLLRDHUP, 0));
}

void AttachSocket::Stop() {
  {
    std::unique_lock lock(mutex_);
    End("the session was closed");
    idle_.wait(lock, [this] { return pending_.empty(); });
  }
  fds_->Close(ForkFds::kAttach);
}

StatusPtr AttachSocket::Send(const std::string& packet, std::span<const int> fds,
                             uint64_t deadline_ns) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == ETOOMANYREFS) {
      return Error(kResourceExhausted, kReasonQuotaArenas,
                   "sending to the daemon: more descriptors are on their way to others than this "
                   "process may have open; raise its limit (ulimit -n)");
    }
    if (errno != EAGAIN) {
      return ErrnoError(errno == EBADF ? kInvalidArgument : kUnavailable,
                        errno == EBADF ? kReasonFieldInvalid : kReasonDaemonLost,
                        "sending to the daemon", errno);
    }
    if (!Ready(fd_, POLLOUT, deadline_ns)) {
      return Error(kDeadlineExceeded, kReasonNotReady,
                   "sending to the daemon: it does not read (stopped?)");
    }
  }
  return nullptr;
}

StatusPtr AttachSocket::Request(uint64_t sequence, const std::string& packet,
                                std::span<const int> fds, uint64_t deadline_ns,
                                AttachResponse* response, int* received) {
  Pending pending{response, received};
  {
    std::lock_guard lock(mutex_);
    if (closed_) return Error(kUnavailable, kReasonDaemonLost, "the daemon is lost");
    pending_.emplace(sequence, &pending);
  }
  StatusPtr error = Send(packet, fds, deadline_ns);
  std::unique_lock lock(mutex_);
  pending.sent = true;
  while (error == nullptr && !pending.answered) {
    const uint64_t now = NowNs();
    if (closed_) {
      error = Error(kUnavailable, kReasonDaemonLost, "the daemon went away before it answered");
    } else if (now >= deadline_ns) {
      error = Error(kDeadlineExceeded, kReasonNotReady,
                    "asking the daemon: no answer in time (stopped?)");
    } else if (!reading_) {
      ReadOne(&lock, 0);
    } else if (deadline_ns == kForever) {
      pending.changed.wait(lock);
    } else {
      pending.changed.wait_for(lock, std::chrono::nanoseconds(deadline_ns - now));
    }
  }
  pending_.erase(sequence);
  if (pending_.empty()) idle_.notify_all();
  if (!reading_) {  // the next waiting thread goes on reading
    const auto next = std::find_if(pending_.begin(), pending_.end(),
                                   [](const auto& entry) { return entry.second->sent; });
    if (next != pending_.end()) next->second->changed.notify_one();
  }
  lock.unlock();
  if (error != nullptr) return error;
  return std::move(response->error);
}

void AttachSocket::ReadOne(std::unique_lock<std::mutex>* lock, int flags) {
  reading_ = true;
  lock->unlock();
  Packet packet;
  AttachResponse response;
  std::string why;
  StatusPtr error = Receive(fd_, flags, buffer_.get(), &packet);
  if (error != nullptr) {
    why = error->message;
  } else if (packet.closed) {
    why = "the daemon closed the session's socket";
  } else if (!DecodeAttachResponse(packet.bytes, &response)) {
    why = "the daemon sent what is no message";
  }
  lock->lock();
  reading_ = false;
  unread_.notify_one();
  if (!why.empty()) {
    CloseAll(&packet.fds);
    return End(std::move(why));
  }
  if (response.sequence == 0 && response.error != nullptr) told_ = std::move(response.error);
  const auto found = pending_.find(response.sequence);
  // A notice, or its caller has given up.
  if (found == pending_.end()) return CloseAll(&packet.fds);
  Pending& pending = *found->second;
  *pending.response = std::move(response);
  if (pending.received != nullptr && packet.fds.size() == 1) {
    *pending.received = packet.fds[0];
  } else {
    CloseAll(&packet.fds);
  }
  pending.answered = true;
  pending.changed.notify_one();
}

void AttachSocket::End(std::string why) {
  if (closed_) return;
  closed_ = true;
  why_ = std::move(why);
  shutdown(fd_, SHUT_RDWR);  // wakes the threads that read, send and watch
  for (auto& [sequence, pending] : pending_) pending->changed.notify_one();
}

void AttachSocket::Ping() {
  const uint64_t sequence = NextSequence();
  AttachResponse response;
  const StatusPtr error = Request(sequence, EncodePing(sequence), {},
                                  DeadlineAfter(kPingPatienceNs), &response, nullptr);
  if (error != nullptr && error->code == kDeadlineExceeded) {
    Break("the daemon has not answered for 10 s (stopped?)");
  }
}

std::string AttachSocket::WaitForEnd(int stop) {
  while (true) {
    pollfd entries[] = {{fd_, POLLRDHUP, 0}, {stop, POLLIN, 0}};
    const int ready = poll(entries, 2, kPingEveryMs);
    if (ready == 0) Ping();
    if (ready <= 0) continue;
    if (entries[1].revents != 0) return "";
    if (entries[0].revents != 0) break;
  }
  std::unique_lock lock(mutex_);
  while (!closed_) {  // answers that came before the end still count
    if (reading_) {
      unread_.wait(lock);
    } else {
      ReadOne(&lock, MSG_DONTWAIT);
    }
  }
  return why_;
}

StatusPtr AttachSocket::told() {
  std::lock_guard lock(mutex_);
  return Copy(told_);
}

}  // namespace ferry::client
