// SPDX-License-Identifier: Apache-2.0
// Who has asked for a reload of the configuration and waits for how it goes; and how it went so
// far. A reload itself is done by one thread, the main one: Take, then the reload, then Answer. Any
// thread.
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

// A reload that was taken over.
struct Reloaded {
  uint64_t generation = 1;  // of the configuration: 1 at the start, one more with each reload
  std::vector<ConfigChange> changes;
};

class ReloadQueue {
 public:
  using Done = std::function<void(const absl::StatusOr<Reloaded>&)>;

  // `wake` has the main thread reload soon; null: nobody reloads.
  explicit ReloadQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  // `done` is called once, on any thread, at the end of a reload that begins after this call; or at
  // once, if it is refused.
  void Ask(const Done& done) {
    const absl::Status refused = Enqueue(done);
    refused.ok() ? wake_() : done(refused);
  }
  // Who is answered by the reload that begins now.
  std::vector<Done> Take() {
    MutexLock lock(mutex_);
    return std::exchange(asked_, {});
  }
  // What a reload has come to, for metrics and those who asked.
  void Answer(const std::vector<Done>& asked, const absl::StatusOr<Reloaded>& outcome) {
    last_ok_ = outcome.ok();
    if (outcome.ok()) generation_ = outcome->generation;
    for (const Done& done : asked) done(outcome);
  }
  // From now on nobody reloads any more.
  void RefuseAll(const absl::Status& why) {
    {
      MutexLock lock(mutex_);
      refused_ = why;
    }
    for (const Done& done : Take()) done(why);
  }

  uint64_t generation() const { return generation_; }
  // The last one was taken over, or there was none.
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
