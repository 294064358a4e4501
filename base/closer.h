// SPDX-License-Identifier: Apache-2.0
// Closes descriptors that somebody else chose, or that may have such in their queue. close() of
// them may wait for as long as their sender likes (a socket that lingers and whose other end does
// not read, a file of FUSE), so no other thread of the daemon closes one. There is one for the
// process, never destroyed.
//
// What one owner (a uid) hands in is closed in order, by one thread at a time: an owner whose
// closing waits holds up its own alone. A thread is made when none is free, up to kThreads: so many
// owners must wait at once before others do. What waits to be closed keeps its descriptor open and
// takes nothing else; who hands in takes nothing more from an owner that is Clogged. Any thread;
// nothing here waits.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/fd.h"
#include "base/mutex.h"

namespace ferry {

class Closer {
 public:
  static constexpr size_t kThreads = 16;
  static constexpr size_t kMost = 512;

  // In a forked child an empty one of its own: no thread of the parent's is there.
  static Closer& Get();
  void Close(uid_t owner, UniqueFd fd);
  // More than kMost of this owner's wait.
  bool Clogged(uid_t owner) const;
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }  // of all

 private:
  struct Owner {
    std::deque<UniqueFd> queue;
    bool closing = false;  // a thread has taken one out
  };
  Closer() = default;
  void Run();

  mutable Mutex mutex_;
  std::condition_variable_any more_;
  absl::flat_hash_map<uid_t, Owner> owners_ ABSL_GUARDED_BY(mutex_);  // with something to close
  std::deque<uid_t> turns_ ABSL_GUARDED_BY(mutex_);  // of those that no thread is at, each once
  size_t threads_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
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
