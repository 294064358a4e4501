// SPDX-License-Identifier: Apache-2.0
#include "daemon/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

Admission::Admission(Bounds bounds, std::function<void()> sweep)
    : bounds_(std::move(bounds)), sweep_(std::move(sweep)) {}

absl::StatusOr<Admission::Pass> Admission::Admit(const Visitor& visitor, absl::Time now) {
  // Without the lock: passes that go take it.
  if (sweep_ != nullptr && !Room(visitor.name)) sweep_();
  MutexLock lock(mutex_);
  if (visitors_.size() >= forget_at_) ForgetQuiet(now);
  const auto refuse = [&](absl::Duration retry,
                          const auto&... why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++refused_;
    return WithRetryAfter(Error(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                                absl::StrCat("connect to ", bounds_.door, ": ", why...)),
                          retry);
  };
  One& one =
      visitors_
          .try_emplace(visitor.name, One{0, {bounds_.per_second_each, bounds_.at_once_each, now}})
          .first->second;
  if (!one.visits.Take(now)) {
    return refuse(absl::Seconds(1 / bounds_.per_second_each), visitor.name, " connects more than ",
                  bounds_.per_second_each, " times a second");
  }
  if (one.open >= bounds_.open_each || open_ >= bounds_.open) {
    return refuse(absl::Seconds(1), one.open, " of at most ", bounds_.open_each, " connections of ",
                  visitor.name, " are open, and ", open_, " of at most ", bounds_.open, " of all");
  }
  ++one.open;
  ++open_;
  Pass pass(visitor.uid);
  pass.admission_ = this;
  pass.name_ = visitor.name;
  return pass;
}

bool Admission::Room(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto one = visitors_.find(name);
  return open_ < bounds_.open && (one == visitors_.end() || one->second.open < bounds_.open_each);
}

void Admission::Leave(const std::string& name) {
  MutexLock lock(mutex_);
  --open_;
  --visitors_.find(name)->second.open;
}

void Admission::ForgetQuiet(absl::Time now) {
  absl::erase_if(visitors_, [&](auto& entry) {
    return entry.second.open == 0 && entry.second.visits.Full(now);
  });
  forget_at_ = std::max<size_t>(1024, 2 * visitors_.size());
}

size_t Admission::open() const {
  MutexLock lock(mutex_);
  return open_;
}

size_t Admission::remembered() const {
  MutexLock lock(mutex_);
  return visitors_.size();
}

uint64_t Admission::refused() const {
  MutexLock lock(mutex_);
  return refused_;
}

}  // namespace ferry
