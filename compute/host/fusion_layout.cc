// SPDX-License-Identifier: Apache-2.0
// What follows from a fusion's ops: the order of its elements, the size of its tiles, what waits
// for the end of a row, and where registers are.
#include <algorithm>
#include <limits>

#include "compute/host/fusion_builder.h"
#include "compute/numerics/reduction_order.h"
#include "compute/plan/kernel_loop.h"
#include "compute/plan/rows.h"

namespace ferry::compute {
namespace {

// Results whose lanes are all held, so that memory is read from its beginning to its end: 128 lanes
// of f32 then take 64 KiB.
constexpr uint64_t kMostHeld = 128;
// Else so many, of which a tile is what a page has, and lanes stay in the first-level cache.
constexpr uint64_t kMostWidth = 1024;
// Fewer elements are not worth a tile of their own.
constexpr uint64_t kLeastTile = 64;

Columns ColumnsOf(uint64_t rows, uint64_t row, uint64_t inner) {
  Columns columns;
  columns.inner = inner;
  columns.outer = rows / inner;
  columns.held = inner <= kMostHeld;
  if (columns.held) {
    columns.width = inner;
    columns.steps = std::max<uint64_t>(1, std::min(row, kTileElements / inner));
    columns.chunks = PartsOf(row, kReductionChunk);
  } else {
    columns.width = std::min(inner, kMostWidth);
  }
  return columns;
}

}  // namespace

// Whether it is the only op on all elements of the loop.
bool FusionBuilder::ReducesAlone(const Node& reduction) const {
  return std::all_of(program_.nodes.begin(), program_.nodes.end(), [&](const Node& node) {
    switch (node.op) {
      case Op::kInput:
      case Op::kConstant:
      case Op::kIota:
        return true;
      case Op::kStore:
      case Op::kAccumulate:
        return Elements(node.operands[0]) != elements_;
      case Op::kReduce:
      case Op::kArgmax:
        return &node == &reduction;
      case Op::kRngBits:
      case Op::kQuantizeBlock:
      case Op::kDequantizeBlock:
        return false;
      default:
        return IsMove(node.op) || Elements(node.first_result) != elements_;
    }
  });
}

void FusionBuilder::OrderElements(const Node& node, const Views& views, bool alone) {
  const TensorType& type = program_.types[node.operands[0]];
  order_ = ReductionOrder(node, type);
  ordered_ = type.dims;
  const bool argmax = node.op == Op::kArgmax;
  const size_t reduced = argmax ? 1 : node.attributes.Ints(Attribute::kDimensions).size();
  const size_t kept = order_.size() - reduced;
  const size_t inner = views.size() == 1 ? InnerOf(views[0], order_, kept) : 0;
  const uint64_t results = inner == 0 ? 1 : NeighboursOf(views[0], order_, kept);
  if (!alone || results <= 1 || results * fusion_.row < kLeastTile || elements_ == fusion_.rows) {
    return;
  }
  const auto first = order_.begin() + static_cast<std::ptrdiff_t>(kept - inner);
  std::rotate(first, order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end());
  fusion_.columns = ColumnsOf(fusion_.rows, fusion_.row, results);
  // Where the largest was is known of a whole row alone.
  if (argmax) fusion_.columns->chunks = 1;
  if (!argmax) fusion_.columns->bytes = TileBytesOf(AccumulatorOf(node, type.dtype));
}

void FusionBuilder::FindOrder() {
  for (const Node& node : program_.nodes) {
    if (node.op != Op::kReduce && node.op != Op::kArgmax) continue;
    const TensorType& type = program_.types[node.operands[0]];
    const Op made_by = program_.nodes[definitions_[node.operands[0]]].op;
    const bool made = !IsMove(made_by) && made_by != Op::kInput && made_by != Op::kConstant &&
                      made_by != Op::kIota;
    // Nothing else of the kernel looks at all elements (Partition::AbsorbReduced).
    if (made && !ReducesRows(node, type)) OrderElements(node, {LinearView(type.dims)}, true);
  }
}

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

bool FusionBuilder::SeeSquares(std::vector<TileOp>& ops) {
  const std::vector<int64_t>& dims = fusion_.squares->view.dims;
  std::vector<TileOp> last;  // stores, which were links
  for (TileOp& op : ops) {
    if (op.level != TileLevel::kFull || op.kind == TileOp::Kind::kRandom) return false;
    if (op.kind == TileOp::Kind::kLink) {
      links_[op.out[0]] = false;
      op.views = {LinearView(dims)};
      op.kind = TileOp::Kind::kLoad;
      if (read_[op.out[0]]) continue;
      op.kind = TileOp::Kind::kStore;
      op.in = std::move(op.out);
      op.out.clear();
      last.push_back(op);
      op.in.clear();  // to be erased
    } else if (!op.views.empty() && (op.views.size() > 1 || !Reshape(op.views[0], dims))) {
      return false;
    }
  }
  std::erase_if(ops,
                [](const TileOp& op) { return op.kind == TileOp::Kind::kStore && op.in.empty(); });
  for (TileOp& op : last) ops.push_back(std::move(op));
  return true;
}

// Loads whose elements lie across memory.
void FusionBuilder::ChooseSquares() {
  if (fusion_.has_rows || fusion_.columns) return;
  for (const TileOp& op : fusion_.ops) {
    if (op.kind != TileOp::Kind::kLoad || op.views.size() != 1) continue;
    fusion_.squares = SquaresFor(op.views[0], op.type);
    if (fusion_.squares) break;
  }
  if (!fusion_.squares) return;
  std::vector<TileOp> ops = fusion_.ops;
  const std::vector<bool> links = links_;
  if (SeeSquares(ops)) {
    fusion_.ops = std::move(ops);
    return;
  }
  links_ = links;
  fusion_.squares.reset();
}

void FusionBuilder::ChooseTile() {
  if (fusion_.squares) {
    fusion_.tile_elements = fusion_.squares->rows * fusion_.squares->columns;
    const bool odd = fusion_.squares->view.dims.back() % 2 != 0;
    fusion_.alone = fusion_.alone || (fusion_.shares_bytes && odd);
    return;
  }
  if (fusion_.columns) {
    fusion_.tile_elements = fusion_.columns->width * fusion_.columns->steps;
    fusion_.alone = fusion_.alone || fusion_.shares_bytes;
    return;
  }
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
