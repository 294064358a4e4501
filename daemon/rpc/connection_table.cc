// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/connection_table.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/closer.h"
#include "base/executor.h"
#include "base/status.h"

namespace ferry {
namespace {

ino_t InodeOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// Bytes that the other end of a TCP connection has sent.
uint64_t Said(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received
                                                                      : 0;
}

// -1 if it is none.
int NumberOf(absl::string_view grpc_peer) {
  int fd = -1;
  return absl::ConsumePrefix(&grpc_peer, "fd:") && absl::SimpleAtoi(grpc_peer, &fd) ? fd : -1;
}

// Half of the descriptors we may have, from the middle of them up.
struct FdRange {
  int begin, end;
};
FdRange OurDescriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 60000));
  return {std::min(2000, end / 2), end};
}

}  // namespace

bool ConnectionTable::StillOpen(int fd, const Entry& entry) { return InodeOf(fd) == entry.inode; }

void ConnectionTable::Sweep() {
  MutexLock lock(mutex_);
  if (const absl::Time now = MonotonicNow(); now - swept_ >= kSweep) {
    SweepNow();
    swept_ = MonotonicNow();
  }
}

void ConnectionTable::SweepNow() {
  for (auto it = by_fd_.begin(); it != by_fd_.end();) {
    auto here = it++;
    if (!StillOpen(here->first, here->second)) by_fd_.erase(here);
  }
}

absl::StatusOr<int> ConnectionTable::Admit(UniqueFd socket, const Credentials& credentials,
                                           Admission::Pass pass, absl::Time greet_by) {
  MutexLock lock(mutex_);
  // Closed connections are found out lazily: gRPC does not say when it closes one.
  if (next_connection_ % 64 == 0) SweepNow();
  const FdRange range = OurDescriptors();
  if (next_fd_ < range.begin || next_fd_ >= range.end) next_fd_ = range.begin;
  int fd = fcntl(socket.get(), F_DUPFD_CLOEXEC, next_fd_);
  if (fd < 0 && (errno == EMFILE || errno == EINVAL))
    fd = fcntl(socket.get(), F_DUPFD_CLOEXEC, range.begin);
  if (fd < 0) fd = fcntl(socket.get(), F_DUPFD_CLOEXEC, 3);
  if (fd < 0) {
    const int error = errno;
    Closer::Get().Close(pass.uid(), std::move(socket));
    return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kInternal, "admit a connection",
                      error);
  }
  next_fd_ = fd + 1;
  Entry& entry = by_fd_[fd];
  entry = {{credentials, next_connection_++}, InodeOf(fd), std::move(pass), UniqueFd()};
  if (greet_by < absl::InfiniteFuture()) {
    entry.ungreeted = std::move(socket);
    ungreeted_.push_back({greet_by, fd, entry.caller.connection});
    any_ungreeted_ = true;
  }
  return fd;
}

void ConnectionTable::Greeted(absl::string_view grpc_peer) {
  MutexLock lock(mutex_);
  const auto it = by_fd_.find(NumberOf(grpc_peer));
  if (it == by_fd_.end()) return;
  it->second.ungreeted.Reset();
  it->second.pass = Admission::Pass();
}

absl::Time ConnectionTable::CloseSilent(absl::Time now) {
  if (!any_ungreeted_) return absl::InfiniteFuture();
  MutexLock lock(mutex_);
  std::erase_if(ungreeted_, [&](const Ungreeted& one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = by_fd_.find(one.fd);
    if (it == by_fd_.end() || it->second.caller.connection != one.connection) return true;
    UniqueFd& socket = it->second.ungreeted;
    if (!socket.valid()) return true;
    if (now < one.until && Said(socket.get()) <= kIntroduction) return false;
    shutdown(socket.get(), SHUT_RDWR);
    socket.Reset();
    return true;
  });
  any_ungreeted_ = !ungreeted_.empty();
  return ungreeted_.empty() ? absl::InfiniteFuture() : now + kLook;
}

std::optional<Caller> ConnectionTable::Find(absl::string_view grpc_peer) const {
  MutexLock lock(mutex_);
  const auto it = by_fd_.find(NumberOf(grpc_peer));
  if (it == by_fd_.end()) return std::nullopt;
  return it->second.caller;
}

bool ConnectionTable::Alive(int connection) const {
  MutexLock lock(mutex_);
  return std::any_of(by_fd_.begin(), by_fd_.end(), [&](const auto& entry) {
    return entry.second.caller.connection == connection && StillOpen(entry.first, entry.second);
  });
}

size_t ConnectionTable::size() const {
  MutexLock lock(mutex_);
  return by_fd_.size();
}

}  // namespace ferry
