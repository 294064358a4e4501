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
// Of a reduction of the dimensions in `order` from place `kept` on: how many of the last dimensions
// before these follow each other in the memory of `view` closer than the elements of a result do.
size_t InnerOf(const View& view, absl::Span<const size_t> order, size_t kept);
// ... and how many results that are.
uint64_t NeighboursOf(const View& view, absl::Span<const size_t> order, size_t kept);
// Of what makes the elements of other reductions than of rows, in the same kernel: ops at most, and
// bits of one element of all that they read. GPUs hold as much for each of a thread's lanes
// (compute/cuda/column_tile.h). Where results, or chunks of them, are fewer than kFewResults, a GPU
// has few threads for all that is done with elements: then no op costs a transcendental function.
inline constexpr int kMaxColumnOps = 12;
inline constexpr int kMaxColumnBits = 128;
inline constexpr uint64_t kFewResults = 2048;
// Whether a broadcast makes of each element a row, of no more than kMaxRow.
bool SpreadsRows(const Node& node, const TensorType& from, const TensorType& to);
// Where a part of what is concatenated along `dimension` goes, from `start` on; nothing if it
// cannot be said.
std::optional<Attributes> PartAttributes(const TensorType& whole, const TensorType& part,
                                         size_t dimension, int64_t start);

}  // namespace ferry::compute
