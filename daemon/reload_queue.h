// SPDX-License-Identifier: Apache-2.0
// The operators who have asked for a reload of the configuration and wait for its outcome; and the
// outcome of the last one. The main thread alone carries reloads out: it calls Take, reloads, and
// calls Answer. Owns the callbacks of those who wait, each until it was called once. Refuses
// nothing. Home: any thread. Owner: Daemon.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "daemon/config/config.h"

namespace ferry {

// What a reload has changed.
struct Reloaded {
  // Number of the configuration: 1 at the start, one more with each reload.
  uint64_t generation = 1;
  std::vector<ConfigChange> changes;
};

class ReloadQueue {
 public:
  using Done = std::function<void(const absl::StatusOr<Reloaded>&)>;

  // `wake` (any thread) must have the main thread reload soon. Null: reloads are refused.
  explicit ReloadQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Calls `done` once, on any thread: at the end of a reload that begins after this call, or at
  // once if reloads are refused.
  void Ask(const Done& done) {
    const absl::Status refused = Enqueue(done);
    refused.ok() ? wake_() : done(refused);
  }
  // Those who are answered by the reload that begins now.
  std::vector<Done> Take() {
    MutexLock lock(mutex_);
    return std::exchange(asked_, {});
  }
  // Remembers the outcome of a reload, for metrics, and tells it those who asked.
  void Answer(const std::vector<Done>& asked, const absl::StatusOr<Reloaded>& outcome) {
    last_ok_ = outcome.ok();
    if (outcome.ok()) generation_ = outcome->generation;
    for (const Done& done : asked) done(outcome);
  }
  // Refuses those who wait and all who will ask.
  void RefuseAll(const absl::Status& why) {
    {
      MutexLock lock(mutex_);
      refused_ = why;
    }
    for (const Done& done : Take()) done(why);
  }

  uint64_t generation() const { return generation_; }
  // True if the last reload was taken over, or there was none.
  bool last_ok() const { return last_ok_; }

 private:
  absl::Status Enqueue(const Done& done) {
    if (wake_ == nullptr) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
                   "reload: this daemon was started without a way to read its configuration again");
    }
    MutexLock lock(mutex_);
    if (refused_.ok()) asked_.push_back(done);
    return refused_;
  }

  const std::function<void()> wake_;
  std::atomic<uint64_t> generation_ = 1;
  std::atomic<bool> last_ok_ = true;
  Mutex mutex_;
  std::vector<Done> asked_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ferry
