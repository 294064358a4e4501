// SPDX-License-Identifier: Apache-2.0
// Which NCCL operations move a group. Both ends make the same plan of the same chunks, though each
// knows only its own layouts: so it depends on nothing but the chunks. NCCL costs about 5 us for an
// operation whatever its size, so small chunks of one direction are packed into one; whether an end
// has its bytes for an operation in one place, or gathers them into staging and scatters them out
// of it, is that end's affair. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ferry {

// Chunks from this size travel alone. Two H200: at 256 KiB an operation of NCCL's and the two
// copies that packing costs take about the same.
inline constexpr uint64_t kPackBelow = uint64_t{256} << 10;
// Of one operation of packed chunks: all that a group stages, because NCCL moves one operation
// faster than several of the same bytes (two H100, 62.5 MiB: 284 us; as 4, 295; as 16, 359).
inline constexpr uint64_t kMostPacked = uint64_t{65} << 20;
// Each chunk begins so in its operation, for the kernel's widest accesses.
inline constexpr uint64_t kPackAlignment = 16;

struct PlannedChunk {
  bool send = false;
  uint64_t bytes = 0;
};

struct PlannedOperation {
  struct Part {
    size_t chunk = 0;     // index
    uint64_t offset = 0;  // in the operation
  };
  bool send = false;
  uint64_t bytes = 0;  // with what alignment puts in between
  std::vector<Part> parts;
};

// In order. Of the operations of each direction the other end has the same; chunks without bytes
// are in none.
std::vector<PlannedOperation> PlanGroup(absl::Span<const PlannedChunk> chunks);

}  // namespace ferry
