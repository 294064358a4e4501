// SPDX-License-Identifier: Apache-2.0
// Closes descriptors that somebody else chose, or that may have such in their queue. close() of
// them may wait for as long as their sender likes (a socket that lingers and whose other end does
// not read, a file of FUSE), so no other thread of the daemon closes one. There is one for the
// process, never destroyed.
//
// A socket is closed within kPatience and a tick of the kernel: a signal to the thread that waits
// ends every lingering, of what is in the socket's queue too. What else there is may wait for ever
// and holds up its owner's (a uid's) alone: one thread closes it, in order. Threads are made when
// none is free, up to as many as the two kinds may have, and end when they have had nothing to do
// for a while; the owners take turns.
//
// A descriptor is the process's until a thread closes it, so who hands in takes nothing more from
// an owner that is Clogged. Any thread; nothing here waits.
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

  // In a forked child an empty one of its own: no thread of the parent's is there.
  static Closer& Get();
  // One of a test's own, which must not be destroyed either; `close` is what its threads do.
  explicit Closer(void (*close)(UniqueFd)) : close_(close) {}
  // Runs `closed` afterwards, on the thread that closed.
  void Close(uid_t owner, UniqueFd fd, Closed closed = nullptr);
  // More than kMost of this owner's wait.
  bool Clogged(uid_t owner) const;
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }  // of all

 private:
  struct Waiting {
    UniqueFd fd;
    Closed closed;
  };
  struct Owner {
    std::deque<Waiting> queue;
    size_t closing = 0;  // threads that have taken one out
    bool has_turn = false;
  };
  struct Pool {
    const size_t most, most_each;  // threads, of all and of an owner
    std::condition_variable_any more;
    absl::flat_hash_map<uid_t, Owner> owners;  // with something to close
    std::deque<uid_t> turns;                   // each once
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

// Descriptors as they came from another process: who wants one moves it out, what is left goes to
// the Closer. One thread at a time.
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
