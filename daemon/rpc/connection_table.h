// SPDX-License-Identifier: Apache-2.0
// Whose the connections are that our accept loop handed to gRPC. gRPC tells a handler only
// "fd:1234"; here that number leads back to the credentials the kernel gave at accept. Numbers are
// dealt round robin from a wide range, so that a call that still waits is never taken for one of
// the next connection. Any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "daemon/door.h"

namespace ferry {

struct Caller {
  Credentials credentials;
  int connection = -1;  // counts up; names the connection for good
};

class ConnectionTable {
 public:
  explicit ConnectionTable(size_t per_uid);
  // Moves `socket` to its number and remembers it. The descriptor is gRPC's from here on.
  // RESOURCE_EXHAUSTED if the uid has too many connections.
  absl::StatusOr<int> Admit(UniqueFd socket, const Credentials& credentials);
  // `grpc_peer` as ServerContext::peer() gives it.
  std::optional<Caller> Find(absl::string_view grpc_peer) const;
  bool Alive(int connection) const;
  size_t size() const;

 private:
  struct Entry {
    Caller caller;
    ino_t inode = 0;
  };
  static bool StillOpen(int fd, const Entry& entry);
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t per_uid_;
  mutable Mutex mutex_;
  absl::flat_hash_map<int, Entry> by_fd_ ABSL_GUARDED_BY(mutex_);
  int next_fd_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace ferry
