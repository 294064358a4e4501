// SPDX-License-Identifier: Apache-2.0
// Gathers tiles from tensors in memory and scatters them into such, as views say
// (compute/plan/view.h). In a tile each f4e2m1fn element has a byte of its own; in memory two share
// one. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/dtype.h"
#include "compute/plan/view.h"

namespace ferry::compute {

// Bytes of an element in a tile.
inline size_t TileBytesOf(DType type) { return type == DType::kF4E2M1FN ? 1 : BytesOf(type, 1); }

// Gathers `count` elements from element `first` on, counted row-major. Each bool becomes 0 or 1.
void Gather(DType type, const std::byte* base, const View& view, uint64_t first, uint64_t count,
            std::byte* tile);
void Gather(DType type, const std::byte* base, const Views& views, uint64_t first, uint64_t count,
            std::byte* tile);
// Gathers the positions themselves.
void PlacesOf(const Views& views, uint64_t first, uint64_t count, int64_t* places);
// Scatters a tile. If an element shares a byte, the other half of the byte keeps its value.
void Scatter(DType type, std::byte* base, const View& view, uint64_t first, uint64_t count,
             const std::byte* tile);
// Copies all elements of one view to those of another view with as many.
void CopyElements(DType type, const std::byte* from_base, const View& from, std::byte* to_base,
                  const View& to);

// Packs a tile's f4e2m1fn elements two to a byte; unpacks them.
void Pack(const std::byte* tile, uint64_t count, std::byte* packed);
void Unpack(const std::byte* packed, uint64_t count, std::byte* tile);
// The same, to or from element `first` of packed memory; the other half of a byte keeps its value.
void PackTo(const std::byte* tile, uint64_t first, uint64_t count, std::byte* packed);
void UnpackFrom(const std::byte* packed, uint64_t first, uint64_t count, std::byte* tile);

}  // namespace ferry::compute
