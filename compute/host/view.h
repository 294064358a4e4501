// SPDX-License-Identifier: Apache-2.0
// Tensors in memory as moves see them, and tiles taken out of them and put into them. In a tile
// each element of f4e2m1fn has a byte, in memory two share one. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compute/dtype.h"
#include "compute/program/program.h"

namespace ferry::compute {

// The element at (i, j, ...) is `offset` + i * strides[0] + j * strides[1] + ... elements after a
// base.
struct View {
  int64_t offset = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

// What moves of moves see: a place that the last one says counts the elements of the one before it,
// and that of the first one is in memory. Never empty.
using Views = std::vector<View>;

// Dense and row-major.
View LinearView(const std::vector<int64_t>& dims);
uint64_t ElementsOf(const View& view);
bool IsDense(const View& view);
// As a view of the same memory of other dimensions; false: no strides say it.
bool Reshape(View& view, const std::vector<int64_t>& dims);
// What `node`, a move or a reshape, makes of its operand `from`.
void Move(const Node& node, const TensorType& from, const TensorType& to, Views& views);
// Dimensions of `type` in another order.
void Permute(absl::Span<const size_t> order, const TensorType& type, Views& views);

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

}  // namespace ferry::compute
