// SPDX-License-Identifier: Apache-2.0
// Places the values of a run in its scratch, before anything is allocated: values that live at the
// same time never share a byte. Each memory space is planned by itself. Equal allocations give
// equal plans everywhere. Pure function; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace ferry::compute {

inline constexpr uint64_t kScratchAlignment = 256;
inline constexpr size_t kMaxHolders = 5;

// A value that needs memory. Steps are counted in the order in which they run.
struct Allocation {
  uint64_t bytes = 0;
  uint32_t first = 0;                      // the step that makes the value
  uint32_t last = 0;                       // the last step that uses it, at least `first`
  uint64_t alignment = kScratchAlignment;  // a power of two
  // Index of an allocation that the producing step (`first`) reads for the last time and may
  // overwrite in place; it was made by an earlier step. This allocation gets its place if both have
  // the same size and no other allocation got it.
  std::optional<size_t> in_place_of;
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;  // by allocation; 0 for one without bytes
  uint64_t bytes = 0;             // size of the scratch; all ones if it is too large to count

  // For the error when the scratch does not fit: the first step with the most live bytes, those
  // bytes (the scratch has more only because of gaps), and the largest allocations then, at most
  // kMaxHolders.
  uint32_t peak_step = 0;
  uint64_t peak_bytes = 0;
  std::vector<size_t> holders;
};

MemoryPlan PlanMemory(absl::Span<const Allocation> allocations);

}  // namespace ferry::compute
