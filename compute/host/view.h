// SPDX-License-Identifier: Apache-2.0
// Tiles taken out of tensors in memory and put into them, as views say (compute/plan/view.h). In a
// tile each element of f4e2m1fn has a byte, in memory two share one. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/dtype.h"
#include "compute/plan/view.h"

namespace ferry::compute {

// Bytes of an element in a tile.
inline size_t TileBytesOf(DType type) { return type == DType::kF4E2M1FN ? 1 : BytesOf(type, 1); }

// The elements from `first` on, counted row-major; bool becomes 0 or 1.
void Gather(DType type, const std::byte* base, const View& view, uint64_t first, uint64_t count,
            std::byte* tile);
void Gather(DType type, const std::byte* base, const Views& views, uint64_t first, uint64_t count,
            std::byte* tile);
// The places themselves.
void PlacesOf(const Views& views, uint64_t first, uint64_t count, int64_t* places);
// The other half of a byte keeps what it has.
void Scatter(DType type, std::byte* base, const View& view, uint64_t first, uint64_t count,
             const std::byte* tile);
// All elements of a view to those of another of as many.
void CopyElements(DType type, const std::byte* from_base, const View& from, std::byte* to_base,
                  const View& to);

// A tile's elements of f4e2m1fn with two a byte, and back.
void Pack(const std::byte* tile, uint64_t count, std::byte* packed);
void Unpack(const std::byte* packed, uint64_t count, std::byte* tile);
// The same, from the element `first` of what has two a byte on: the other half of a byte keeps what
// it has.
void PackTo(const std::byte* tile, uint64_t first, uint64_t count, std::byte* packed);
void UnpackFrom(const std::byte* packed, uint64_t first, uint64_t count, std::byte* tile);

}  // namespace ferry::compute
