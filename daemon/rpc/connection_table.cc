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
#include <utility>

#include "absl/container/flat_hash_set.h"
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

// How many bytes the other end of a TCP connection has sent.
uint64_t Said(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received
                                                                      : 0;
}

// The descriptor's number in gRPC's name of a connection; -1 if there is none.
int NumberOf(absl::string_view grpc_peer) {
  int fd = -1;
  return absl::ConsumePrefix(&grpc_peer, "fd:") && absl::SimpleAtoi(grpc_peer, &fd) ? fd : -1;
}

// The numbers to deal out: from 2,000 (from the middle, if the process may have fewer than 4,000)
// up to at most 60,000.
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
  // Closed connections are found lazily, because gRPC does not tell when it closes one.
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
  const int connection = next_connection_++;
  entry = {{credentials, connection, fd}, InodeOf(fd), std::move(pass)};
  if (greet_by < absl::InfiniteFuture()) {
    entry.may_be_strange = true;
    strangers_.push_back({greet_by, fd, connection});
    any_strangers_ = true;
    if (of_ == Of::kPeers) look_at_ = absl::InfinitePast();
    MayGiveWay(entry);
    Settle({credentials.uid, credentials.pid});
  }
  return fd;
}

ConnectionTable::Entry* ConnectionTable::FindEntry(int fd, int connection) {
  const auto it = by_fd_.find(fd);
  return it != by_fd_.end() && it->second.caller.connection == connection ? &it->second : nullptr;
}

void ConnectionTable::MayGiveWay(Entry& entry) {
  entry.pass.MayGiveWay([this, fd = entry.caller.fd, connection = entry.caller.connection] {
    MutexLock lock(mutex_);
    Entry* const found = FindEntry(fd, connection);
    if (found == nullptr) return;
    Settle(ProcessOf(*found));
    if (found->caller.known) return found->pass.Stays();
    ShutDown(*found);
  });
}

// The newest connections of a process are known; older ones may have ended without telling.
void ConnectionTable::Settle(const Process& process) {
  const auto sessions = sessions_.find(process);
  if (sessions == sessions_.end()) return;
  std::vector<Entry*> newest;
  for (auto& [fd, entry] : by_fd_) {
    if (entry.may_be_strange && ProcessOf(entry) == process) newest.push_back(&entry);
  }
  std::sort(newest.begin(), newest.end(), [](const Entry* one, const Entry* other) {
    return one->caller.connection > other->caller.connection;
  });
  size_t left = 2 * sessions->second;
  for (Entry* const entry : newest) {
    const bool known = left > 0 && StillOpen(entry->caller.fd, *entry);
    if (known) --left;
    if (std::exchange(entry->caller.known, known) == known) continue;
    if (known) {
      entry->pass.Stays();
    } else {
      MayGiveWay(*entry);
    }
  }
}

void ConnectionTable::OnSessions(const Credentials& credentials, int by) {
  const Process process(credentials.uid, credentials.pid);
  MutexLock lock(mutex_);
  sessions_[process] += static_cast<size_t>(by);
  Settle(process);
  if (sessions_[process] == 0) sessions_.erase(process);
}

// gRPC then closes the connection, and its place is free. Before the check the number may belong to
// something else.
void ConnectionTable::ShutDown(const Entry& entry) {
  UniqueFd same(fcntl(entry.caller.fd, F_DUPFD_CLOEXEC, 3));
  if (!same.valid()) return;
  if (StillOpen(same.get(), entry)) shutdown(same.get(), SHUT_RDWR);
  Closer::Get().Close(entry.pass.uid(), std::move(same));
}

void ConnectionTable::Greeted(absl::string_view grpc_peer) {
  MutexLock lock(mutex_);
  const auto it = by_fd_.find(NumberOf(grpc_peer));
  if (it == by_fd_.end()) return;
  it->second.caller.known = true;
  it->second.pass = Admission::Pass();
}

void ConnectionTable::Called(absl::string_view grpc_peer) {
  MutexLock lock(mutex_);
  const auto it = by_fd_.find(NumberOf(grpc_peer));
  if (it != by_fd_.end()) it->second.called = true;
}

absl::Time ConnectionTable::CloseSilent(absl::Time now) {
  if (!any_strangers_) return absl::InfiniteFuture();
  MutexLock lock(mutex_);
  if (now < look_at_) return look_at_;
  absl::flat_hash_set<Process> settled;
  std::erase_if(strangers_, [&](const Stranger& one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Entry* const entry = FindEntry(one.fd, one.connection);
    if (entry == nullptr || entry->caller.known) return true;
    if (of_ == Of::kClients && entry->called) return true;
    const bool loud = of_ == Of::kPeers && Said(one.fd) > kIntroductionBytes;
    if (now < one.until && !loud) return false;
    if (settled.insert(ProcessOf(*entry)).second) Settle(ProcessOf(*entry));
    if (!entry->caller.known) ShutDown(*entry);
    return true;
  });
  any_strangers_ = !strangers_.empty();
  if (strangers_.empty()) return absl::InfiniteFuture();
  look_at_ = now + (of_ == Of::kPeers ? kLook : kLookAtClients);
  return look_at_;
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
