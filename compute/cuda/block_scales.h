// SPDX-License-Identifier: Apache-2.0
// Products of blocks that tensor cores multiply with their scales: which ones these are, and how
// scales get into the order in which tensor cores read them (compute/numerics/scale_layout.h). Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/plan/part.h"
#include "compute/program/program.h"

namespace ferry::compute {

// Whether tensor cores multiply what `product`, of `program`, has as factors: a block_scaled_dot of
// two matrices of the types, blocks and depths that they have.
bool TakesBlocks(const Program& program, const Node& product);

// The scales that the blocks of factor `index` (0 or 1) of such a product need: its rows by the
// blocks of a row. The product's own may be more.
TensorType NeededScales(const Program& program, const Node& product, size_t index);

// Whether swizzled scales of type `unswizzled` begin with what such a product reads of those it
// needs: they have the same columns, whole tiles of them. (What fills a tile up is to be 0, which
// that of a program need not be.)
bool AreTiles(const TensorType& unswizzled, const TensorType& needed);

// Adds to `part` what stores the first rows and columns of `scales`, a value of `part`, swizzled,
// into a buffer of its own. `needed`: their type and number.
void AddSwizzle(ValueId scales, const TensorType& needed, Part& part);

// Programs that put swizzled scales into the order of pieces: those for `columns` blocks of each
// row, then those for the next ones, and so on; each piece swizzled by itself, one behind the
// other. `needed`: the type and number of all. `columns`: whole tiles. All read the first of two
// buffers and write a part of the second. None if the order is the same already.
std::vector<Program> ScaleCuts(const TensorType& needed, int64_t columns);

}  // namespace ferry::compute
