// SPDX-License-Identifier: Apache-2.0
// Joins elementwise ops of a tile fusion, on f32 and bf16, into chains. A result that only the next
// op of the chain needs stays in the CPU's registers; only a result that others need too is put
// into a register of the tile. Pure function.
#pragma once

#include <vector>

#include "compute/host/tile_fusion.h"

namespace ferry::compute {

// Replaces ops of `ops` by chains. `ops` is in an order in which the ops can run, and still is
// afterwards. `once` and `loads` run before them, `stores` after.
void JoinChains(const std::vector<TileOp>& once, const std::vector<TileOp>& loads,
                const std::vector<TileOp>& stores, std::vector<TileOp>& ops);

}  // namespace ferry::compute
