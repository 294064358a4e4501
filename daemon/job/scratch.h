// SPDX-License-Identifier: Apache-2.0
// Scratch memory that runs of programs borrow, one at a time. Up to kKept bytes are kept for the
// next run; more goes back with Shrink. Owns the memory, which a ScratchMaker makes. Home: the
// thread that runs the programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"

namespace ferry {

// Makes memory where programs run. Outlives what it has made.
class ScratchMaker {
 public:
  virtual ~ScratchMaker() = default;
  // `bytes` is not 0. Aligned to 4,096 bytes. RESOURCE_EXHAUSTED/DEVICE_MEMORY if there is none.
  virtual absl::StatusOr<std::byte*> Make(uint64_t bytes) = 0;
  virtual void Free(std::byte* memory, uint64_t bytes) = 0;
};

class Scratch {
 public:
  static constexpr uint64_t kKept = uint64_t{16} << 20;

  explicit Scratch(ScratchMaker& maker) : maker_(&maker) {}
  ~Scratch() { Free(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // `bytes` bytes, valid until the next Get or Shrink. They hold whatever the run before left
  // there. Errors: as ScratchMaker::Make.
  absl::StatusOr<absl::Span<std::byte>> Get(uint64_t bytes);
  // Both must be of one maker.
  void Swap(Scratch& other) {
    home_.Check();
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  // Gives the memory back if it is more than `most`.
  void Shrink(uint64_t most = kKept);
  uint64_t bytes() const { return bytes_; }

 private:
  void Free();

  ScratchMaker* const maker_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
