// SPDX-License-Identifier: Apache-2.0
// How many connections a door takes: of all, and of each visitor, who is a uid on a Unix socket and
// an address on a TCP port; and how often a visitor may come. So nobody takes the descriptors, or
// the time of the door's thread, that others need. Any thread.
//
// A connection counts until its Pass goes. Passes must not outlive their Admission.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/token_bucket.h"

namespace ferry {

struct Visitor {
  std::string name;  // "uid 1000", "192.0.2.1", "2001:db8:0:1::/64"
  uid_t uid = geteuid();
};

class Admission {
 public:
  struct Bounds {
    std::string door;  // its name, for messages
    size_t open = 0;   // of all
    size_t open_each = 0;
    double per_second_each = 0;  // in the long run
    double at_once_each = 0;     // before that counts
  };
  class Pass {
   public:
    Pass() = default;
    explicit Pass(uid_t uid) : uid_(uid) {}  // of nobody's admission: a connection of one's own
    Pass(Pass&& other) noexcept
        : admission_(std::exchange(other.admission_, nullptr)),
          name_(std::move(other.name_)),
          uid_(other.uid_) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(admission_, other.admission_);
      std::swap(name_, other.name_);
      std::swap(uid_, other.uid_);
      return *this;
    }
    ~Pass() {
      if (admission_ != nullptr) admission_->Leave(name_);
    }
    uid_t uid() const { return uid_; }

   private:
    friend class Admission;
    Admission* admission_ = nullptr;
    std::string name_;
    uid_t uid_ = geteuid();
  };

  // `sweep` drops passes of connections that have ended without a word; it is called before one is
  // refused for want of room.
  explicit Admission(Bounds bounds, std::function<void()> sweep = nullptr);

  // RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS with what is too much and when to try again.
  absl::StatusOr<Pass> Admit(const Visitor& visitor, absl::Time now);
  size_t open() const;
  uint64_t refused() const;
  size_t remembered() const;  // visitors

 private:
  struct One {
    size_t open = 0;
    TokenBucket visits;
  };
  void Leave(const std::string& name);
  bool Room(const std::string& name) const;
  void ForgetQuiet(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Bounds bounds_;
  const std::function<void()> sweep_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, One> visitors_ ABSL_GUARDED_BY(mutex_);
  size_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 1024;
};

}  // namespace ferry
