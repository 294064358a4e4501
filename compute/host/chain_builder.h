// SPDX-License-Identifier: Apache-2.0
// Puts ops of a group that are done for all elements, on f32 and bf16, into chains. What an op
// makes stays in the CPU's registers for the next one; only what others need too is put into a
// register of the tile. Pure function.
#pragma once

#include <vector>

#include "compute/host/tile_group.h"

namespace ferry::compute {

// `ops` in an order in which they can run, which changes; `once` and `loads`
// are before them, `stores` after.
void JoinChains(const std::vector<TileOp>& once, const std::vector<TileOp>& loads,
                const std::vector<TileOp>& stores, std::vector<TileOp>& ops);

}  // namespace ferry::compute
