// SPDX-License-Identifier: Apache-2.0
// Finds bytes that several layouts have in common: bytes that two transfers of one batch write, or
// that one writes twice. Ranges and blocks of tables are sorted. Strides are never walked, but
// compared by arithmetic. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transfer/layout.h"

namespace ferry {

// Layouts `first` and `second` (perhaps the same one) both have the byte at `offset`, in these
// blocks.
struct Overlap {
  size_t first = 0;
  size_t second = 0;
  size_t first_block = 0;
  size_t second_block = 0;
  ArenaId arena;
  uint64_t offset = 0;
};

// The most comparisons that FindOverlaps makes for strided layouts. A batch that needs more is
// refused with BATCH_TOO_LARGE, so that no batch takes long. Each extent costs one comparison for
// each stride length among the strided layouts whose memory it lies between; a strided layout costs
// 16 more for each of those layouts whose stride has another length. 4,096 interleaved layouts of
// one stride length are fine, as are 300 of different lengths.
inline constexpr size_t kMaxStrideCost = size_t{1} << 20;

// At most one Overlap for each layout as `second`; none if no byte is there twice. Extents need not
// be inside their arenas: their ends saturate.
absl::StatusOr<std::vector<Overlap>> FindOverlaps(absl::Span<const Layout* const> layouts);

// The bytes of `ranges`, each once: sorted by arena and offset, with a gap between any two ranges.
std::vector<Range> Union(std::vector<Range> ranges);
// Whether `range` has a byte in common with `ranges`, which Union() made.
bool Meets(absl::Span<const Range> ranges, const Range& range);

}  // namespace ferry
