// SPDX-License-Identifier: Apache-2.0
// Whose the connections are that our accept loop handed to gRPC. gRPC tells a handler only
// "fd:1234"; here that number leads back to the credentials the kernel gave at accept. Numbers are
// dealt round robin from a wide range, so that a call that still waits is never taken for one of
// the next connection.
//
// A connection may be a stranger's: then it gives way to others (Admission), and it is shut down
// if it is none's that is known, and nothing was called on it, by the time it was admitted with.
// On the peer port who it is has to be said by then whatever was called, and within kIntroduction
// bytes: gRPC would take what is said without a bound. Of clients those of a process that has
// sessions are known, two for each of them: libferry makes one, and may not use it for long. Any
// thread.
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

struct Caller {
  Credentials credentials;
  int connection = -1;  // counts up; names the connection for good
  int fd = -1;          // its number, as long as it is open
  bool known = false;
};

class ConnectionTable {
 public:
  static constexpr uint64_t kIntroduction = 1 << 20;
  enum class Of {
    kClients,  // who is known keeps its place
    kPeers,    // and whoever may come until then has it
  };
  explicit ConnectionTable(Of of) : of_(of) {}

  // Moves `socket` to its number and remembers it, with its `pass`, until it was closed. The
  // descriptor is gRPC's from here on. RESOURCE_EXHAUSTED if there is no number left.
  absl::StatusOr<int> Admit(UniqueFd socket, const Credentials& credentials, Admission::Pass pass,
                            absl::Time greet_by = absl::InfiniteFuture());
  // Of a peer: it is known from here on.
  void Greeted(absl::string_view grpc_peer);
  // Of clients: the process has one session more, or less.
  void OnSessions(const Credentials& process, int by);
  // Something is called on it.
  void Called(absl::string_view grpc_peer);
  // Shuts down strangers whose time is over by `now`, or who say too much; when it wants to be
  // called again.
  absl::Time CloseSilent(absl::Time now);
  // Forgets closed connections, which gRPC says nothing of; not more often than each kSweep.
  void Sweep();
  // `grpc_peer` as ServerContext::peer() gives it.
  std::optional<Caller> Find(absl::string_view grpc_peer) const;
  bool Alive(int connection) const;
  size_t size() const;

 private:
  using Process = std::pair<uid_t, pid_t>;
  static constexpr absl::Duration kSweep = absl::Milliseconds(20);
  // How often clients and peers are looked at, these for what they have said.
  static constexpr absl::Duration kLookAtClients = absl::Seconds(1);
  static constexpr absl::Duration kLook = absl::Milliseconds(5);
  struct Entry {
    Caller caller;
    ino_t inode = 0;
    Admission::Pass pass;
    bool may_be_strange = false;  // it was admitted with a time
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
  // Which of its connections are known, as things are now.
  void Settle(const Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void ShutDown(const Entry& entry);
  void SweepNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Of of_;
  mutable Mutex mutex_;
  absl::Time swept_ ABSL_GUARDED_BY(mutex_);
  absl::Time look_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<Stranger> strangers_ ABSL_GUARDED_BY(mutex_);  // some are known since
  std::atomic<bool> any_strangers_ = false;
  absl::flat_hash_map<Process, size_t> sessions_ ABSL_GUARDED_BY(mutex_);  // none: not there
  absl::flat_hash_map<int, Entry> by_fd_ ABSL_GUARDED_BY(mutex_);
  int next_fd_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace ferry
