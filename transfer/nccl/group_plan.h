// SPDX-License-Identifier: Apache-2.0
// Plans which NCCL operations move a group. Both ends make the same plan from the same chunks,
// though each knows only its own layouts, so the plan depends on the chunks alone. An NCCL
// operation costs about 5 us whatever its size, so small chunks of one direction are packed into
// one operation. Whether an end has the bytes of an operation in one place, or gathers them into
// staging and scatters them from there, is for that end to decide. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ferry {

// Chunks of this size and more have an operation of their own. On two H200, at 256 KiB an operation
// takes about as long as the two copies that packing costs.
inline constexpr uint64_t kPackBelow = uint64_t{256} << 10;
// The most bytes of one operation of packed chunks: all that a group stages
// (GroupCutter::Options::group_bytes), and 1 MiB for the gaps of alignment. NCCL moves one
// operation faster than several of the same total (two H100, 62.5 MiB: 284 us in one, 295 in 4, 359
// in 16).
inline constexpr uint64_t kMostPacked = uint64_t{65} << 20;
// Alignment of each chunk in its operation, for the kernel's widest accesses.
inline constexpr uint64_t kPackAlignment = 16;

struct PlannedChunk {
  bool send = false;
  uint64_t bytes = 0;
};

struct PlannedOperation {
  struct Part {
    size_t chunk = 0;     // index in the group
    uint64_t offset = 0;  // where the chunk begins in the operation
  };
  bool send = false;
  uint64_t bytes = 0;  // total, with the gaps of alignment
  std::vector<Part> parts;
};

// The operations in order. The other end plans the same operations for each direction. Chunks
// without bytes are in none.
std::vector<PlannedOperation> PlanGroup(absl::Span<const PlannedChunk> chunks);

}  // namespace ferry
