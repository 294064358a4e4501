// SPDX-License-Identifier: Apache-2.0
// Shows a bar on stderr while something long runs; nothing if stderr is no terminal. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace ferry::tools {

class Progress {
 public:
  // `total_bytes`: nothing if nobody knows. `enabled` is false for JSON output; then nothing is
  // shown.
  Progress(std::string what, std::optional<uint64_t> total_bytes, bool enabled);
  ~Progress();
  // Draws at most ten times a second.
  void Show(uint64_t bytes);

 private:
  const std::string what_;
  const std::optional<uint64_t> total_;
  const bool shown_;
  const absl::Time start_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace ferry::tools
