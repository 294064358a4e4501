// SPDX-License-Identifier: Apache-2.0
// A Home runs code one piece at a time: an Executor, or a thread of its own such as the door's. A
// HomeChecker is a member of a class whose objects have a home. It ends the process when an object
// is called from anywhere else, with the place, the object's home and the home of the caller. In
// builds with NDEBUG it is empty and checks nothing.
//
// The first call that is made at a home binds the object to that home. While the home lives, calls
// from another home fail, and so do calls from threads that are at no home. So before the first
// task an object may be called from anywhere (who builds it), and after Home::End too (who takes it
// down). Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace ferry {

class AtHome;

class Home {
 public:
  // `name` is for messages.
  explicit Home(std::string name);
  ~Home() { End(); }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

  // Nothing runs here any more but what takes the home's objects down. Idempotent.
  void End();
  const std::string& name() const { return name_; }
  // Whether the calling thread runs code of this home now.
  inline bool IsCurrent() const;
  // As IsCurrent, or the thread goes on with such code afterwards: a task of one home may run tasks
  // of another (Executor::PostOrRun). Whoever waits for this home on that thread waits for ever.
  bool IsUnderWay() const;

 private:
  friend class HomeChecker;
  const std::string name_;
  const uint64_t number_;  // from 1; no other Home of this process has it
};

// While one lives, its thread is at `home`. They are destroyed in reverse order.
class AtHome {
 public:
  explicit AtHome(const Home& home) : home_(home), before_(innermost_) { innermost_ = this; }
  ~AtHome() { innermost_ = before_; }
  AtHome(const AtHome&) = delete;
  AtHome& operator=(const AtHome&) = delete;

 private:
  friend class Home;
  friend class HomeChecker;
  static inline constinit thread_local const AtHome* innermost_ = nullptr;  // of this thread
  const Home& home_;
  const AtHome* const before_;
};

bool Home::IsCurrent() const {
  return AtHome::innermost_ != nullptr && &AtHome::innermost_->home_ == this;
}

#ifndef NDEBUG

class HomeChecker {
 public:
  HomeChecker() = default;
  // Another object, which may have another home.
  HomeChecker(const HomeChecker&) noexcept {}
  HomeChecker& operator=(const HomeChecker&) noexcept { return *this; }

  // At the beginning of each public function that does more than to return a member to be read.
  void Check(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
             const char* function = __builtin_FUNCTION()) const {
    const AtHome* const here = AtHome::innermost_;
    const uint64_t number = here == nullptr ? 0 : here->home_.number_;
    if (bound_.load(std::memory_order_relaxed) != number) Bind(number, file, line, function);
  }

 private:
  void Bind(uint64_t here, const char* file, int line, const char* function) const;
  // The number of the home; 0: none yet. Atomic, because a wrong call comes from another thread.
  mutable std::atomic<uint64_t> bound_ = 0;
};

#else

class HomeChecker {
 public:
  void Check() const {}
};

#endif

}  // namespace ferry
