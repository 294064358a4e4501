// SPDX-License-Identifier: Apache-2.0
// Memory that one run of a program after the other borrows. Up to kKept bytes are kept for the next
// run; more goes back to the system with Shrink. Owns the memory. Home: the thread that runs the
// programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"

namespace ferry {

class Scratch {
 public:
  static constexpr uint64_t kKept = uint64_t{16} << 20;

  Scratch() = default;
  ~Scratch() { Free(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // `bytes` bytes, aligned to a page, valid until the next Get or Shrink. They hold whatever the
  // run before left there. RESOURCE_EXHAUSTED/DEVICE_MEMORY if the system has no memory.
  absl::StatusOr<absl::Span<std::byte>> Get(uint64_t bytes);
  void Swap(Scratch& other) {
    home_.Check();
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  // Gives the memory back to the system if it is more than kKept.
  void Shrink();
  uint64_t bytes() const { return bytes_; }

 private:
  void Free();

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
