// SPDX-License-Identifier: Apache-2.0
// How ops see tensors as rows, and where parts of a tensor are in it: what decides the role of an
// op in a kernel. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "compute/program/program.h"

namespace ferry::compute {

// Whether a reduction or an argmax of a value of `type` makes one element of each row.
bool ReducesRows(const Node& node, const TensorType& type);
// Of what makes the elements of other reductions than such, in the same kernel: ops at most, and
// bits of one element of all that they read. GPUs hold as much for each of a thread's lanes
// (compute/cuda/column_tile.h).
inline constexpr int kMaxColumnOps = 12;
inline constexpr int kMaxColumnBits = 128;
// Whether a broadcast makes of each element a row, of no more than kMaxRow.
bool SpreadsRows(const Node& node, const TensorType& from, const TensorType& to);
// Where a part of what is concatenated along `dimension` goes, from `start` on; nothing if it
// cannot be said.
std::optional<Attributes> PartAttributes(const TensorType& whole, const TensorType& part,
                                         size_t dimension, int64_t start);

}  // namespace ferry::compute
