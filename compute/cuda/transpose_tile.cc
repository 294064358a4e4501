// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/transpose_tile.h"

#include <cstddef>

#include "compute/cuda/kernel_text.h"

namespace ferry::compute {

std::optional<TransposeTile> TransposeTileOf(const View& view, int vector) {
  const View all = Collapsed(view);
  if (all.dims.size() < 2 || all.strides.back() == 0 || all.strides.back() == 1) {
    return std::nullopt;
  }
  TransposeTile tile;
  tile.last = all.dims.back();
  tile.stride = all.strides.back();
  bool found = false;
  for (size_t d = 0; d + 1 < all.dims.size(); ++d) {
    if (!found && all.strides[d] == 1) {
      tile.along = all.dims[d];
      found = true;
    } else {
      (found ? tile.between : tile.outer) *= all.dims[d];
    }
  }
  if (!found || tile.along % vector != 0 || tile.last % vector != 0) return std::nullopt;
  return tile;
}

uint64_t BlocksOf(const TransposeTile& tile, int vector) {
  const auto of = [&](int64_t dim) {
    const auto side = static_cast<uint64_t>(kTileSquares * vector);
    return (static_cast<uint64_t>(dim) + side - 1) / side;
  };
  return static_cast<uint64_t>(tile.outer * tile.between) * of(tile.along) * of(tile.last);
}

}  // namespace ferry::compute
