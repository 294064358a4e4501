// SPDX-License-Identifier: Apache-2.0
// Where in one arena the values of a run are, known before anything is allocated: those that are
// there at the same time never share a byte. Each memory space is planned by itself. The same for
// the same allocations, everywhere. Pure function; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace ferry::compute {

inline constexpr uint64_t kArenaAlignment = 256;
inline constexpr size_t kMaxHolders = 5;

// Steps are counted in the order in which they run.
struct Allocation {
  uint64_t bytes = 0;
  uint32_t first = 0;                    // the step that makes it
  uint32_t last = 0;                     // the last that has to do with it, not before `first`
  uint64_t alignment = kArenaAlignment;  // a power of two
  // Another, of a step before, which the step that makes this one has to do with last, and may
  // write over as it goes. This one has its place if both are of as many bytes and nobody else has.
  std::optional<size_t> in_place_of;
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;  // by allocation; of one without bytes 0
  uint64_t bytes = 0;             // of the arena; all ones if they are too many to count

  // For whoever is told that it does not fit: the first step at which most bytes are there, how
  // many (the arena has more only where it has gaps), and the largest of them, kMaxHolders at most.
  uint32_t peak_step = 0;
  uint64_t peak_bytes = 0;
  std::vector<size_t> holders;
};

MemoryPlan PlanMemory(absl::Span<const Allocation> allocations);

}  // namespace ferry::compute
