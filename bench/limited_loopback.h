// SPDX-License-Identifier: Apache-2.0
// A loopback of this thread's own that takes so much and no more, for what is started meanwhile:
// a slow link between daemons of one machine. Needs root, `ip` and `tc`. One thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ferry::bench {

class LimitedLoopback {
 public:
  // `rate` as of tc: "8gbit". UNIMPLEMENTED where there is no right to make one.
  static absl::StatusOr<std::unique_ptr<LimitedLoopback>> Enter(const std::string& rate);
  // Back to the loopback before.
  ~LimitedLoopback();
  LimitedLoopback(const LimitedLoopback&) = delete;
  LimitedLoopback& operator=(const LimitedLoopback&) = delete;

 private:
  explicit LimitedLoopback(UniqueFd before) : before_(std::move(before)) {}
  const UniqueFd before_;
};

}  // namespace ferry::bench
