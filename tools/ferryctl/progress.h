// SPDX-License-Identifier: Apache-2.0
// A bar on stderr while something long runs, only if stderr is a terminal. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace ferry::tools {

class Progress {
 public:
  // `total_bytes`: none if nobody knows. `enabled`: false for JSON output; without a terminal
  // nothing is shown either.
  Progress(std::string what, std::optional<uint64_t> total_bytes, bool enabled);
  ~Progress();
  // At most ten times a second on the screen.
  void Show(uint64_t bytes);

 private:
  const std::string what_;
  const std::optional<uint64_t> total_;
  const bool shown_;
  const absl::Time start_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace ferry::tools
