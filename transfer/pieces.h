// SPDX-License-Identifier: Apache-2.0
// Cuts the bytes of a transfer, laid out as one list of ranges at the source and another at the
// destination, into pieces that are contiguous at both ends. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ferry {

struct Piece {
  size_t source_range = 0;     // index into the source's list
  uint64_t source_offset = 0;  // within that range
  size_t destination_range = 0;
  uint64_t destination_offset = 0;
  uint64_t length = 0;  // never 0
};

// Both lists sum to the same number of bytes (checked). Zero bytes have no pieces.
std::vector<Piece> CutPieces(absl::Span<const uint64_t> source_lengths,
                             absl::Span<const uint64_t> destination_lengths);

}  // namespace ferry
