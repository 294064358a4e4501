// SPDX-License-Identifier: Apache-2.0
// Whose the connections are that our accept loop handed to gRPC. gRPC tells a handler only
// "fd:1234"; here that number leads back to the credentials the kernel gave at accept. Numbers are
// dealt round robin from a wide range, so that a call that still waits is never taken for one of
// the next connection.
//
// Who is on the peer port has to introduce itself first: a connection that is not greeted by the
// time it was admitted with, or that says more than kIntroduction before, is shut down. gRPC would
// take what it says without a bound. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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
  static constexpr uint64_t kIntroduction = 1 << 20;

  // Moves `socket` to its number and remembers it, with its `pass`, until it was closed. The
  // descriptor is gRPC's from here on. RESOURCE_EXHAUSTED if there is no number left.
  absl::StatusOr<int> Admit(UniqueFd socket, const Credentials& credentials, Admission::Pass pass,
                            absl::Time greet_by = absl::InfiniteFuture());
  // It is not shut down any more, and whoever may come until then has its place.
  void Greeted(absl::string_view grpc_peer);
  // Shuts down what should have been greeted by `now`, or says too much; when it wants to be called
  // again.
  absl::Time CloseSilent(absl::Time now);
  // Forgets closed connections, which gRPC says nothing of; not more often than each kSweep.
  void Sweep();
  // `grpc_peer` as ServerContext::peer() gives it.
  std::optional<Caller> Find(absl::string_view grpc_peer) const;
  bool Alive(int connection) const;
  size_t size() const;

 private:
  static constexpr absl::Duration kSweep = absl::Milliseconds(20);
  static constexpr absl::Duration kLook = absl::Milliseconds(5);  // at what has been said
  struct Entry {
    Caller caller;
    ino_t inode = 0;
    Admission::Pass pass;
    UniqueFd ungreeted;  // the connection once more: its number may be another's before we look
  };
  struct Ungreeted {
    absl::Time until;
    int fd;
    int connection;
  };
  static bool StillOpen(int fd, const Entry& entry);
  void SweepNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  absl::Time swept_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ungreeted> ungreeted_ ABSL_GUARDED_BY(mutex_);  // some were greeted since
  std::atomic<bool> any_ungreeted_ = false;
  absl::flat_hash_map<int, Entry> by_fd_ ABSL_GUARDED_BY(mutex_);
  int next_fd_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace ferry
