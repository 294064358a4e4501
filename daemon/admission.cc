// SPDX-License-Identifier: Apache-2.0
#include "daemon/admission.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/token_bucket.h"

namespace ferry {

// A Pass's `leave` is called without the mutex: it takes the mutexes of whoever has the connection,
// and passes are destroyed with those held.
class Admission::Book {
 public:
  explicit Book(Bounds bounds) : bounds_(std::move(bounds)) {}

  // The number of the new pass; and, if a connection must leave for it, that connection's `leave`.
  absl::StatusOr<std::pair<uint64_t, std::function<void()>>> Enter(const Visitor& visitor,
                                                                   absl::Time now);
  void SetBounds(Bounds bounds) {
    MutexLock lock(mutex_);
    bounds_ = std::move(bounds);
    for (auto& [name, one] : visitors_) {
      one.visits.Set(bounds_.per_second_each, bounds_.at_once_each);
    }
  }
  void Leave(uint64_t number);
  void MayGiveWay(uint64_t number, std::function<void()> leave);
  void Stays(uint64_t number);
  // Whether one more connection of this visitor would be admitted without refusing it or asking
  // another one to leave.
  bool Room(const std::string& name) const;
  bool BeingLeft() const {
    MutexLock lock(mutex_);
    return here_.size() >= bounds_.open && !leaving_.empty();
  }
  size_t open() const {
    MutexLock lock(mutex_);
    return here_.size();
  }
  uint64_t refused() const {
    MutexLock lock(mutex_);
    return refused_;
  }
  size_t remembered() const {
    MutexLock lock(mutex_);
    return visitors_.size();
  }

 private:
  struct One {
    size_t open = 0;
    size_t leaving = 0;  // of `open`, those that were asked to leave
    std::map<uint64_t, std::function<void()>> may_leave;
    TokenBucket visits;
  };
  // With more connections than this, the oldest that may give way is asked to leave.
  size_t most_staying() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return bounds_.open - bounds_.open / 8;
  }
  One& Of(const Visitor& visitor, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  One* OneOfMany() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::function<void()> LetLeave(One& one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  One& Owner(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return visitors_.find(here_.find(number)->second)->second;
  }
  absl::Status Refuse(absl::Duration retry, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++refused_;
    return WithRetryAfter(Error(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                                absl::StrCat("connect to ", bounds_.door, ": ", why)),
                          retry);
  }

  mutable Mutex mutex_;
  Bounds bounds_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, One> visitors_ ABSL_GUARDED_BY(mutex_);
  // By number: the visitor's name.
  absl::flat_hash_map<uint64_t, std::string> here_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint64_t> leaving_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;  // an older connection has a smaller number
  uint64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 1024;
};

absl::StatusOr<std::pair<uint64_t, std::function<void()>>> Admission::Book::Enter(
    const Visitor& visitor, absl::Time now) {
  MutexLock lock(mutex_);
  One& one = Of(visitor, now);
  if (!one.visits.Take(now)) {
    return Refuse(absl::Seconds(1 / bounds_.per_second_each),
                  absl::StrCat(visitor.name, " connects more than ", bounds_.per_second_each,
                               " times a second"));
  }
  const bool share_taken = one.open - one.leaving >= bounds_.open_each;
  if ((share_taken && one.may_leave.empty()) || one.open >= bounds_.open_each + kMostLeaving ||
      here_.size() >= bounds_.open) {
    return Refuse(
        absl::Seconds(1),
        absl::StrCat(one.open, " of at most ", bounds_.open_each, " connections of ", visitor.name,
                     " are open, and ", here_.size(), " of at most ", bounds_.open, " of all"));
  }
  std::function<void()> leave;
  if (share_taken) {
    leave = LetLeave(one);
  } else if (here_.size() - leaving_.size() >= most_staying()) {
    if (One* const many = OneOfMany()) leave = LetLeave(*many);
  }
  ++one.open;
  here_[next_] = visitor.name;
  return std::pair(next_++, std::move(leave));
}

Admission::Book::One& Admission::Book::Of(const Visitor& visitor, absl::Time now) {
  if (visitors_.size() >= forget_at_) {
    absl::erase_if(visitors_, [&](auto& entry) {
      return entry.second.open == 0 && entry.second.visits.Full(now);
    });
    forget_at_ = std::max<size_t>(1024, 2 * visitors_.size());
  }
  return visitors_
      .try_emplace(visitor.name,
                   One{0, 0, {}, {bounds_.per_second_each, bounds_.at_once_each, now}})
      .first->second;
}

// The visitor with the most connections that may give way; null if none may.
Admission::Book::One* Admission::Book::OneOfMany() {
  One* many = nullptr;
  for (auto& [name, one] : visitors_) {
    if (one.may_leave.size() > (many == nullptr ? 0 : many->may_leave.size())) many = &one;
  }
  return many;
}

// Asks the visitor's oldest connection that may give way to leave.
std::function<void()> Admission::Book::LetLeave(One& one) {
  const auto oldest = one.may_leave.begin();
  leaving_.insert(oldest->first);
  ++one.leaving;
  std::function<void()> leave = std::move(oldest->second);
  one.may_leave.erase(oldest);
  return leave;
}

bool Admission::Book::Room(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto one = visitors_.find(name);
  return here_.size() < most_staying() &&
         (one == visitors_.end() || one->second.open < bounds_.open_each);
}

void Admission::Book::Leave(uint64_t number) {
  MutexLock lock(mutex_);
  One& one = Owner(number);
  --one.open;
  one.may_leave.erase(number);
  if (leaving_.erase(number) > 0) --one.leaving;
  here_.erase(number);
}

void Admission::Book::MayGiveWay(uint64_t number, std::function<void()> leave) {
  MutexLock lock(mutex_);
  if (!leaving_.contains(number)) Owner(number).may_leave[number] = std::move(leave);
}

void Admission::Book::Stays(uint64_t number) {
  MutexLock lock(mutex_);
  One& one = Owner(number);
  one.may_leave.erase(number);
  if (leaving_.erase(number) > 0) --one.leaving;
}

Admission::Admission(Bounds bounds, std::function<void()> sweep)
    : sweep_(std::move(sweep)), book_(std::make_shared<Book>(std::move(bounds))) {}

absl::StatusOr<Admission::Pass> Admission::Admit(const Visitor& visitor, absl::Time now) {
  if (sweep_ != nullptr && !book_->Room(visitor.name)) sweep_();
  ASSIGN_OR_RETURN(const auto entered, book_->Enter(visitor, now));
  if (entered.second != nullptr) entered.second();
  Pass pass(visitor.uid);
  pass.book_ = book_;
  pass.number_ = entered.first;
  return pass;
}

bool Admission::BeingLeft() const {
  if (!book_->BeingLeft()) return false;
  if (sweep_ != nullptr) sweep_();
  return book_->BeingLeft();
}

void Admission::SetBounds(Bounds bounds) { book_->SetBounds(std::move(bounds)); }
size_t Admission::open() const { return book_->open(); }
uint64_t Admission::refused() const { return book_->refused(); }
size_t Admission::remembered() const { return book_->remembered(); }

Admission::Pass::~Pass() {
  if (book_ != nullptr) book_->Leave(number_);
}

void Admission::Pass::MayGiveWay(std::function<void()> leave) {
  if (book_ != nullptr) book_->MayGiveWay(number_, std::move(leave));
}

void Admission::Pass::Stays() {
  if (book_ != nullptr) book_->Stays(number_);
}

}  // namespace ferry
