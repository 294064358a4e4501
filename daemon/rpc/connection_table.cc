// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/connection_table.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace ferry {
namespace {

ino_t InodeOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
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

ConnectionTable::ConnectionTable(size_t per_uid) : per_uid_(per_uid) {}

bool ConnectionTable::StillOpen(int fd, const Entry& entry) { return InodeOf(fd) == entry.inode; }

void ConnectionTable::Sweep() {
  for (auto it = by_fd_.begin(); it != by_fd_.end();) {
    auto here = it++;
    if (!StillOpen(here->first, here->second)) by_fd_.erase(here);
  }
}

absl::StatusOr<int> ConnectionTable::Admit(UniqueFd socket, const Credentials& credentials) {
  MutexLock lock(mutex_);
  const auto of_uid = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::count_if(by_fd_.begin(), by_fd_.end(), [&](const auto& entry) {
      return entry.second.caller.credentials.uid == credentials.uid;
    });
  };
  // Closed connections are found out lazily: gRPC does not say when it closes one.
  if (by_fd_.size() >= per_uid_ || next_connection_ % 64 == 0) Sweep();
  if (by_fd_.size() >= per_uid_ && static_cast<size_t>(of_uid()) >= per_uid_) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                 absl::StrCat("uid ", credentials.uid, " has ", per_uid_, " connections already"));
  }
  const FdRange range = OurDescriptors();
  if (next_fd_ < range.begin || next_fd_ >= range.end) next_fd_ = range.begin;
  int fd = fcntl(socket.get(), F_DUPFD_CLOEXEC, next_fd_);
  if (fd < 0 && (errno == EMFILE || errno == EINVAL))
    fd = fcntl(socket.get(), F_DUPFD_CLOEXEC, range.begin);
  if (fd < 0) fd = fcntl(socket.get(), F_DUPFD_CLOEXEC, 3);
  if (fd < 0) {
    return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kInternal, "admit a connection",
                      errno);
  }
  next_fd_ = fd + 1;
  by_fd_[fd] = {{credentials, next_connection_++}, InodeOf(fd)};
  return fd;
}

std::optional<Caller> ConnectionTable::Find(absl::string_view grpc_peer) const {
  int fd = 0;
  if (!absl::ConsumePrefix(&grpc_peer, "fd:") || !absl::SimpleAtoi(grpc_peer, &fd))
    return std::nullopt;
  MutexLock lock(mutex_);
  auto it = by_fd_.find(fd);
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
