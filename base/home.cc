// SPDX-License-Identifier: Apache-2.0
#include "base/home.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"

namespace ferry {
namespace {

uint64_t NextNumber() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

#ifndef NDEBUG
// The homes that live, for the checkers that are bound to them.
struct Living {
  Mutex mutex;
  absl::flat_hash_map<uint64_t, std::string> names ABSL_GUARDED_BY(mutex);  // by number
};
Living& AllLiving() {
  static Living* const only = new Living;
  return *only;
}

// "" if the home does not live.
std::string NameOf(uint64_t number) {
  Living& living = AllLiving();
  MutexLock lock(living.mutex);
  const auto found = living.names.find(number);
  return found == living.names.end() ? "" : found->second;
}
#endif

}  // namespace

Home::Home(std::string name) : name_(std::move(name)), number_(NextNumber()) {
#ifndef NDEBUG
  Living& living = AllLiving();
  MutexLock lock(living.mutex);
  living.names.emplace(number_, absl::StrCat("'", name_, "'"));
#endif
}

void Home::End() {
#ifndef NDEBUG
  Living& living = AllLiving();
  MutexLock lock(living.mutex);
  living.names.erase(number_);
#endif
}

bool Home::IsUnderWay() const {
  const AtHome* at = AtHome::innermost_;
  while (at != nullptr && &at->home_ != this) at = at->before_;
  return at != nullptr;
}

#ifndef NDEBUG
void HomeChecker::Bind(uint64_t here, const char* file, int line, const char* function) const {
  uint64_t bound = bound_.load(std::memory_order_relaxed);
  while (bound != here) {
    const std::string home = bound == 0 ? "" : NameOf(bound);
    if (!home.empty()) {
      const AtHome* const at = AtHome::innermost_;
      CheckFailed(file, line,
                  absl::StrCat(function, " is called at ",
                               at == nullptr ? "no home" : absl::StrCat("'", at->home_.name(), "'"),
                               ", the object's home is ", home)
                      .c_str());
    }
    bound_.compare_exchange_weak(bound, here, std::memory_order_relaxed);
  }
}
#endif

}  // namespace ferry
