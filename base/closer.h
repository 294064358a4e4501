// SPDX-License-Identifier: Apache-2.0
// Closes descriptors that somebody else chose, or that may have such descriptors in their queue.
// Their close() may block for as long as the sender likes (a socket that lingers and whose other
// end does not read, a file of FUSE), so no other thread of the daemon closes one. The process has
// one Closer, which is never destroyed.
//
// A socket is closed within kPatience and one tick of the kernel: a signal to the thread that
// closes it ends all lingering, also that of sockets in its queue. Any other descriptor may block
// for ever, and then holds up only the descriptors of the same owner (a uid): one thread at a time
// closes an owner's, in order. Threads are started when none is free, up to a bound for sockets and
// one for the rest, and end when they have had nothing to do for a while. Owners take turns.
//
// A descriptor counts as the process's until a thread closes it. So whoever calls Close must take
// nothing more from an owner that is Clogged. Any thread; no function here blocks.
#pragma once

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "base/fd.h"
#include "base/mutex.h"

namespace ferry {

class Closer {
 public:
  static constexpr size_t kMost = 512;
  static constexpr std::chrono::milliseconds kPatience{1};
  using Closed = absl::AnyInvocable<void()>;

  // The process's Closer. A forked child gets an empty one of its own, because none of the parent's
  // threads is there.
  static Closer& Get();
  // A Closer for a test, which must not be destroyed either. Its threads call `close`.
  explicit Closer(void (*close)(UniqueFd)) : close_(close) {}
  // Runs `closed` afterwards, on the thread that closed `fd`.
  void Close(uid_t owner, UniqueFd fd, Closed closed = nullptr);
  // Whether more than kMost descriptors of this owner wait.
  bool Clogged(uid_t owner) const;
  // Descriptors that wait, of all owners.
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  struct Waiting {
    UniqueFd fd;
    Closed closed;
  };
  struct Owner {
    std::deque<Waiting> queue;
    size_t closing = 0;  // threads that are closing a descriptor of this owner
    bool has_turn = false;
  };
  // The threads for one kind of descriptors.
  struct Pool {
    const size_t most, most_each;  // threads: of all owners, of one owner
    std::condition_variable_any more;
    absl::flat_hash_map<uid_t, Owner> owners;  // owners with something to close
    std::deque<uid_t> turns;                   // owners to serve next, each once
    size_t threads = 0;
    size_t idle = 0;
  };
  struct Thread {
    Closer& closer;
    Pool& pool;
  };
  void GiveTurn(Pool& pool, uid_t uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void* Run(void* thread);
  void Serve(Pool& pool) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseNext(Pool& pool) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void (*const close_)(UniqueFd);
  mutable Mutex mutex_;
  Pool sockets_ ABSL_GUARDED_BY(mutex_){64, 16};
  Pool others_ ABSL_GUARDED_BY(mutex_){16, 1};
  std::atomic<size_t> waiting_ = 0;
};

// Descriptors as they came from another process. Whoever wants one moves it out; those that are
// left go to the Closer. For one thread at a time.
class ReceivedFds {
 public:
  ReceivedFds() = default;
  explicit ReceivedFds(uid_t owner) : owner_(owner) {}
  ReceivedFds(std::vector<UniqueFd> fds) : fds_(std::move(fds)) {}  // NOLINT: one's own
  ReceivedFds(ReceivedFds&&) = default;
  ReceivedFds& operator=(ReceivedFds&& other) {
    std::swap(owner_, other.owner_);
    fds_.swap(other.fds_);
    return *this;
  }
  ~ReceivedFds() {
    for (UniqueFd& fd : fds_) {
      if (fd.valid()) Closer::Get().Close(owner_, std::move(fd));
    }
  }

  void Add(UniqueFd fd) { fds_.push_back(std::move(fd)); }
  size_t size() const { return fds_.size(); }
  bool empty() const { return fds_.empty(); }
  UniqueFd& operator[](size_t i) { return fds_[i]; }
  const UniqueFd& operator[](size_t i) const { return fds_[i]; }
  std::vector<UniqueFd> TakeAll() { return std::exchange(fds_, {}); }

 private:
  uid_t owner_ = geteuid();
  std::vector<UniqueFd> fds_;
};

}  // namespace ferry
