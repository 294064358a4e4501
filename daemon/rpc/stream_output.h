// SPDX-License-Identifier: Apache-2.0
// The sending side of a gRPC stream: messages queue up while one is being written, and go out in
// order. gRPC may call back from inside StartWrite, so the lock is never held during a call. Any
// thread.
//
// Owned by shared_ptr: by the reactor (which gRPC keeps until OnDone) and by whoever sends.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace ferry {

template <typename Message, typename End>
class StreamOutput {
 public:
  // `start` begins a write, `finish` ends the stream. Both are called only between construction and
  // Detach; there are never two writes at once, and `finish` is called once, last.
  StreamOutput(std::function<void(const Message*)> start, std::function<void(End)> finish)
      : start_(std::move(start)), finish_(std::move(finish)) {}

  void Push(Message message) {
    Append([&](Message& last) { last = std::move(message); }, [](const Message&) { return false; });
  }

  // `append` adds to the last message that still waits, if `merges` returns true for it; else to a
  // new message.
  template <typename F, typename M>
  void Append(F append, M merges) {
    {
      MutexLock lock(mutex_);
      if (detached_ || end_.has_value()) return;
      if (waiting_.empty() || waiting_.back().appended >= kMergedMax ||
          !merges(std::as_const(waiting_.back().message))) {
        waiting_.emplace_back();
      }
      append(waiting_.back().message);
      ++waiting_.back().appended;
      if (!Next()) return;
    }
    start_(&current_);
  }

  // Ends the stream after the messages that wait now, or at once if a write has failed.
  void Finish(End end) {
    {
      MutexLock lock(mutex_);
      if (detached_ || end_.has_value()) return;
      end_ = std::move(end);
      if (writing_ || !waiting_.empty()) return;
      finishing_ = true;
    }
    finish_(*end_);
  }

  void OnWriteDone(bool ok) {
    bool write = false, finish = false;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) waiting_.clear();
      write = Next();
      finish = !write && !detached_ && end_.has_value() && !std::exchange(finishing_, true);
    }
    if (write) start_(&current_);
    if (finish) finish_(*end_);
  }

  // The reactor is about to be destroyed: from here on nothing is written.
  void Detach() {
    MutexLock lock(mutex_);
    detached_ = true;
    waiting_.clear();
  }

  // How many messages wait to be written.
  size_t waiting() const {
    MutexLock lock(mutex_);
    return waiting_.size();
  }

 private:
  // Keeps a merged message well below the size that the receiver takes.
  static constexpr int kMergedMax = 32;
  struct Waiting {
    Message message;
    int appended = 0;
  };

  bool Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || waiting_.empty() || detached_) return false;
    current_ = std::move(waiting_.front().message);
    waiting_.pop_front();
    writing_ = true;
    return true;
  }

  const std::function<void(const Message*)> start_;
  const std::function<void(End)> finish_;
  mutable Mutex mutex_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  Message current_;  // the message that is being written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool detached_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<End> end_;
};

}  // namespace ferry
