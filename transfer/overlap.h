// SPDX-License-Identifier: Apache-2.0
// Which of several layouts have bytes in common: what is written by two transfers of one batch, or
// twice by one. Ranges and blocks of tables are sorted; strides are never walked, but compared by
// arithmetic. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transfer/layout.h"

namespace ferry {

// Layouts `first` and `second` (which may be the same) both have the byte at `offset`, in these of
// their blocks.
struct Overlap {
  size_t first = 0;
  size_t second = 0;
  size_t first_block = 0;
  size_t second_block = 0;
  ArenaId arena;
  uint64_t offset = 0;
};

// What lies between the ends of strides is looked up once for each length of stride there, and
// strides of different lengths are compared one by one. More of either than this is refused
// (BATCH_TOO_LARGE), so that no batch takes long. 4,096 interleaved strides of one length are fine,
// as are 300 of different ones.
inline constexpr size_t kMaxStrideCost = size_t{1} << 20;

// At most one for each layout as `second`; none if no byte is there twice. Extents need not be
// inside their arenas: ends saturate.
absl::StatusOr<std::vector<Overlap>> FindOverlaps(absl::Span<const Layout* const> layouts);

// The bytes of `ranges`, each once: by arena and offset, none touching the next.
std::vector<Range> Union(std::vector<Range> ranges);
// Whether `range` has a byte of `ranges`, which Union made.
bool Meets(absl::Span<const Range> ranges, const Range& range);

}  // namespace ferry
