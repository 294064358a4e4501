// SPDX-License-Identifier: Apache-2.0
// A loopback interface of this thread's own with a bounded rate, for processes that are started
// while the object lives: a slow link between daemons of one machine. Needs root, `ip` and `tc`.
// One thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ferry::bench {

class LimitedLoopback {
 public:
  // `rate` in tc's form: "8gbit". UNIMPLEMENTED if this process may not make one.
  static absl::StatusOr<std::unique_ptr<LimitedLoopback>> Enter(const std::string& rate);
  // Returns to the loopback of before.
  ~LimitedLoopback();
  LimitedLoopback(const LimitedLoopback&) = delete;
  LimitedLoopback& operator=(const LimitedLoopback&) = delete;

 private:
  explicit LimitedLoopback(UniqueFd before) : before_(std::move(before)) {}
  const UniqueFd before_;
};

}  // namespace ferry::bench
