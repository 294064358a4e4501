// SPDX-License-Identifier: Apache-2.0
// What follows from a fusion's ops: the size of its tiles, what waits for the end of a row, and
// where registers are.
#include <algorithm>
#include <limits>

#include "compute/host/fusion_builder.h"

namespace ferry::compute {

// Rows that are longer than a tile: what is done once a row and needed by nothing that is done for
// each element waits for the last tile of it.
void FusionBuilder::FindRowEnds() {
  std::vector<bool> needed(fusion_.memory.size());
  std::vector<bool> of_rows(fusion_.memory.size());  // what reductions make, and what is made of it
  for (const TileOp& op : fusion_.ops) {
    const bool reduces = op.kind == TileOp::Kind::kReduce || op.kind == TileOp::Kind::kArgmax;
    const bool uses =
        std::any_of(op.in.begin(), op.in.end(), [&](uint32_t in) { return of_rows[in]; });
    if (op.level == TileLevel::kRow) fusion_.keeps_rows = true;
    if (op.kind == TileOp::Kind::kSpread && uses) fusion_.tile_rows = 0;  // whole rows only
    for (const uint32_t out : op.out)
      of_rows[out] = (reduces || uses) && op.kind != TileOp::Kind::kSpread;
  }
  for (size_t i = fusion_.ops.size(); i-- > 0;) {
    TileOp& op = fusion_.ops[i];
    const bool row = op.level == TileLevel::kRow;
    op.at_row_end = row && std::none_of(op.out.begin(), op.out.end(),
                                        [&](uint32_t out) { return needed[out]; });
    if (op.kind != TileOp::Kind::kSpread && !row) continue;
    if (op.at_row_end) continue;
    for (const uint32_t in : op.in) needed[in] = true;
  }
  for (TileOp& op : stores_) op.at_row_end = op.level == TileLevel::kRow;
}

void FusionBuilder::ChooseTile() {
  const bool whole = fusion_.has_rows && (fusion_.tile_rows == 0 || fusion_.row <= kTileElements);
  if (whole) {
    const uint64_t rows = kTileElements / std::max<uint64_t>(1, fusion_.row);
    fusion_.tile_rows = std::max<uint64_t>(1, std::min(rows, fusion_.rows));
    fusion_.tile_elements =
        std::max(fusion_.tile_rows, fusion_.tile_rows * std::max<uint64_t>(1, fusion_.row));
  } else {
    fusion_.tile_rows = 1;
    const uint64_t tile = std::max(blocks_, kTileElements / blocks_ * blocks_);
    fusion_.tile_elements = std::min(blocks_ > kMaxTile ? fusion_.row : tile, fusion_.row);
    const bool odd = fusion_.row % 2 != 0 || fusion_.tile_elements % 2 != 0;
    fusion_.alone = fusion_.alone || (fusion_.shares_bytes && odd);
  }
  for (TileOp& op : fusion_.ops) {
    if (op.kind == TileOp::Kind::kDequantize) {
      op.scale_bytes = fusion_.tile_rows *
                       ScaleColumns(std::min(fusion_.row, fusion_.tile_elements), op.format.block);
    }
  }
}

void FusionBuilder::ShareMemory() {
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  std::vector<size_t> last(fusion_.memory.size(), 0);
  for (size_t i = 0; i < fusion_.ops.size(); ++i) {
    const TileOp& op = fusion_.ops[i];
    for (const uint32_t out : op.out) last[out] = std::max(last[out], i);
    for (const uint32_t in : op.in) last[in] = std::max(last[in], i);
  }
  // Those that are filled before the first tile keep theirs, and those that wait for a row's end.
  for (const TileOp& op : fusion_.once) {
    for (const uint32_t out : op.out) {
      fusion_.memory[out] = fusion_.memories++;
      last[out] = kNever;
    }
  }
  std::vector<bool> placed(fusion_.memory.size());
  std::vector<uint32_t> unused;
  std::vector<uint32_t> live;
  for (size_t i = 0; i < fusion_.ops.size(); ++i) {
    const TileOp& op = fusion_.ops[i];
    for (const uint32_t out : op.out) {
      if (links_[out] || placed[out]) continue;
      if (unused.empty()) unused.push_back(fusion_.memories++);
      fusion_.memory[out] = unused.back();
      placed[out] = true;
      unused.pop_back();
      live.push_back(out);
    }
    for (size_t j = 0; j < live.size();) {
      if (last[live[j]] > i) {
        ++j;
        continue;
      }
      unused.push_back(fusion_.memory[live[j]]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i]) fusion_.memory[i] = TileFusion::kNoMemory;
  }
}

}  // namespace ferry::compute
