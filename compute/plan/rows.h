// SPDX-License-Identifier: Apache-2.0
// How ops see tensors as rows, and where parts of a tensor are in it: what decides the role of an
// op in a kernel. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "compute/plan/view.h"
#include "compute/program/program.h"

namespace ferry::compute {

// Whether a reduction or an argmax of a value of `type` makes one element of each row.
bool ReducesRows(const Node& node, const TensorType& type);
// A reduction keeps the first `kept` dimensions of `order`, and reduces those behind them. InnerOf:
// how many of the last dimensions that it keeps have smaller strides in `view` than every dimension
// that it reduces. So the results that these dimensions count lie closer to each other in memory
// than the elements of one result do. NeighboursOf: how many results they count.
size_t InnerOf(const View& view, absl::Span<const size_t> order, size_t kept);
uint64_t NeighboursOf(const View& view, absl::Span<const size_t> order, size_t kept);
// Bounds of the elementwise ops that make what a reduction over other dimensions than the last
// reduces, if its kernel does them: the number of ops, and the bits that they read for one element.
// A thread of a GPU holds both in registers for each of its lanes (compute/cuda/column_tile.h).
inline constexpr int kMaxColumnOps = 12;
inline constexpr int kMaxColumnBits = 128;
// A reduction of fewer results, or chunks of results, keeps too few threads of a GPU busy for
// costly ops on each element: its kernel does none that costs a transcendental function (OpCost).
inline constexpr uint64_t kFewResults = 2048;
// Whether a broadcast makes of each element a row, of no more than kMaxRow.
bool SpreadsRows(const Node& node, const TensorType& from, const TensorType& to);
// Where a part of what is concatenated along `dimension` goes, from `start` on; nothing if it
// cannot be said.
std::optional<Attributes> PartAttributes(const TensorType& whole, const TensorType& part,
                                         size_t dimension, int64_t start);

}  // namespace ferry::compute
