// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/scale_layout.h"

#include <cstring>

namespace ferry::compute {
namespace {

constexpr uint64_t kTileRows = 128;
constexpr uint64_t kTileColumns = 4;
constexpr uint64_t kNeighbours = 32;  // rows this far apart are beside each other

constexpr uint64_t Tiles(uint64_t size, uint64_t tile) {
  return size / tile + (size % tile != 0 ? 1 : 0);
}

}  // namespace

uint64_t SwizzledScaleBytes(uint64_t rows, uint64_t columns) {
  return Tiles(rows, kTileRows) * kTileRows * Tiles(columns, kTileColumns) * kTileColumns;
}

uint64_t SwizzledScaleOffset(uint64_t row, uint64_t column, uint64_t columns) {
  const uint64_t tile = row / kTileRows * Tiles(columns, kTileColumns) + column / kTileColumns;
  return tile * kTileRows * kTileColumns +
         row % kNeighbours * (kTileRows / kNeighbours) * kTileColumns +
         row % kTileRows / kNeighbours * kTileColumns + column % kTileColumns;
}

void SwizzleScales(const std::byte* plain, uint64_t rows, uint64_t columns, std::byte* swizzled) {
  const uint64_t bytes = SwizzledScaleBytes(rows, columns);
  if (bytes == 0) return;
  std::memset(swizzled, 0, bytes);
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t column = 0; column < columns; ++column) {
      swizzled[SwizzledScaleOffset(row, column, columns)] = plain[row * columns + column];
    }
  }
}

void UnswizzleScales(const std::byte* swizzled, uint64_t rows, uint64_t columns, std::byte* plain) {
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t column = 0; column < columns; ++column) {
      plain[row * columns + column] = swizzled[SwizzledScaleOffset(row, column, columns)];
    }
  }
}

}  // namespace ferry::compute
