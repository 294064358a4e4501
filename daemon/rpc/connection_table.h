// SPDX-License-Identifier: Apache-2.0
// Remembers the connections that our accept loop has handed to gRPC. gRPC tells a handler only
// "fd:1234" of its caller; this table leads from that number back to the credentials that the
// kernel gave at accept. Numbers are dealt out in turn from a wide range, so that a call that still
// waits is never taken for a call of the next connection.
//
// A connection that was admitted with a time `greet_by` may be a stranger's. It then gives way to
// others (Admission), and is shut down at that time if it is not known. A client's connection is
// known if its process has sessions: two connections for each session, the newest ones. (libferry
// makes one, and may not use it for long.) A client's connection on which something was called is
// not shut down either. A peer's connection is known once the peer has proven who it is. Until then
// it may say at most kIntroductionBytes bytes, whatever it calls: gRPC would take what is said
// without a bound. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "daemon/door.h"

namespace ferry {

// The connection of a call.
struct Caller {
  Credentials credentials;
  int connection = -1;  // counts up; never used for another connection
  int fd = -1;          // its descriptor's number, as long as it is open
  bool known = false;   // it is no stranger's
};

class ConnectionTable {
 public:
  static constexpr uint64_t kIntroductionBytes = 1 << 20;
  enum class Of {
    kClients,  // a connection that is known keeps its Pass
    kPeers,    // a connection that is known gives its Pass up, which counts strangers only
  };
  explicit ConnectionTable(Of of) : of_(of) {}

  // Moves `socket` to a number of this table, and remembers it with its `pass` until it is closed.
  // gRPC owns the descriptor from here on. RESOURCE_EXHAUSTED if there is no free number. See above
  // for `greet_by`.
  absl::StatusOr<int> Admit(UniqueFd socket, const Credentials& credentials, Admission::Pass pass,
                            absl::Time greet_by = absl::InfiniteFuture());
  // A peer's connection is known from here on.
  void Greeted(absl::string_view grpc_peer);
  // In the table of clients: the process has `by` sessions more, or less.
  void OnSessions(const Credentials& process, int by);
  // Something is called on the connection.
  void Called(absl::string_view grpc_peer);
  // Shuts down strangers whose time has passed by `now`, and those that have said too much. Returns
  // when it wants to be called again.
  absl::Time CloseSilent(absl::Time now);
  // Forgets connections that were closed, which gRPC does not tell. Does nothing if it was called
  // less than kSweep ago.
  void Sweep();
  // `grpc_peer` as ServerContext::peer() returns it; nothing if it is no connection of this table.
  std::optional<Caller> Find(absl::string_view grpc_peer) const;
  bool Alive(int connection) const;
  size_t size() const;

 private:
  using Process = std::pair<uid_t, pid_t>;
  static constexpr absl::Duration kSweep = absl::Milliseconds(20);
  // How often strangers are looked at: clients; and peers, for how much they have said.
  static constexpr absl::Duration kLookAtClients = absl::Seconds(1);
  static constexpr absl::Duration kLook = absl::Milliseconds(5);
  struct Entry {
    Caller caller;
    ino_t inode = 0;
    Admission::Pass pass;
    bool may_be_strange = false;  // it was admitted with a `greet_by`
    bool called = false;
  };
  struct Stranger {
    absl::Time until;
    int fd;
    int connection;
  };
  static bool StillOpen(int fd, const Entry& entry);
  Entry* FindEntry(int fd, int connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MayGiveWay(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static Process ProcessOf(const Entry& entry) {
    return {entry.caller.credentials.uid, entry.caller.credentials.pid};
  }
  // Decides anew which connections of the process are known.
  void Settle(const Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void ShutDown(const Entry& entry);
  void SweepNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Of of_;
  mutable Mutex mutex_;
  absl::Time swept_ ABSL_GUARDED_BY(mutex_);
  absl::Time look_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<Stranger> strangers_ ABSL_GUARDED_BY(mutex_);  // some have become known since
  std::atomic<bool> any_strangers_ = false;
  // A process without sessions is not in it.
  absl::flat_hash_map<Process, size_t> sessions_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int, Entry> by_fd_ ABSL_GUARDED_BY(mutex_);
  int next_fd_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace ferry
