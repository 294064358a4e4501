// SPDX-License-Identifier: Apache-2.0
// Memory for one run of a program after the other: what is small is kept, what is large goes back
// to the system at once. Home: whoever runs programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ferry {

class Scratch {
 public:
  static constexpr uint64_t kKept = uint64_t{16} << 20;

  Scratch() = default;
  ~Scratch() { Free(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // `bytes` of a page's alignment, until the next call or Shrink. What they hold is whatever the
  // last one left. RESOURCE_EXHAUSTED/DEVICE_MEMORY if the system has none.
  absl::StatusOr<absl::Span<std::byte>> Get(uint64_t bytes);
  void Swap(Scratch& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  // Gives back what is more than kKept.
  void Shrink();
  uint64_t bytes() const { return bytes_; }

 private:
  void Free();

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace ferry
