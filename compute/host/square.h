// SPDX-License-Identifier: Apache-2.0
// Squares of tensors in memory, to and from tiles. Moves across memory, such as transposes, go by
// squares, so that of each line of a cache all is used that was read. Elements in a tile are as
// view.h says. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compute/dtype.h"
#include "compute/plan/view.h"

namespace ferry::compute {

// Element (i, j) is `at` + i * `along` + j * `last` elements from a base; it is element i * columns
// + j of the tile.
struct Square {
  int64_t at = 0;
  int64_t along = 1;
  int64_t last = 1;
  uint64_t rows = 0;
  uint64_t columns = 0;
};

// How a loop goes by squares: along dimension `along` of `view`, which is read across, and the last
// one.
struct Squares {
  View view;
  size_t along = 0;
  uint64_t rows = 1;  // of a square; at the end of a dimension there may be fewer
  uint64_t columns = 1;

  uint64_t Count() const;
};

// The squares for a load by `view`; none if no dimension lies closer in memory than the last one.
std::optional<Squares> SquaresFor(const View& view, DType type);
// The part of `view`, of the same dimensions, that is in square number `index`.
Square SquareOf(const Squares& squares, const View& view, uint64_t index);

// Has the CPU read what GatherSquare is to read soon.
void FetchSquare(DType type, const std::byte* base, const Square& square);
// Gathers the elements. Each bool becomes 0 or 1.
void GatherSquare(DType type, const std::byte* base, const Square& square, std::byte* tile);
// Scatters a tile. If an element shares a byte, the other half of the byte keeps its value.
void ScatterSquare(DType type, std::byte* base, const Square& square, const std::byte* tile);
// Gathers the positions themselves.
void PlacesOfSquare(const Square& square, int64_t* places);

}  // namespace ferry::compute
