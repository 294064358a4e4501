// SPDX-License-Identifier: Apache-2.0
// What one thread of a fusion's run has and does, for tile_fusion.cc alone. In scratch: what ops
// have between, the registers, what reductions hold, scales. Single-threaded; must not outlive the
// fusion and the memory of the run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "compute/host/block_loops.h"
#include "compute/host/column_reduction.h"
#include "compute/host/reduction.h"
#include "compute/host/tile_fusion.h"
#include "compute/numerics/philox.h"

namespace ferry::compute {

class TileRunner {
 public:
  static constexpr uint64_t kAlignment = 64;
  static constexpr uint64_t Aligned(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  // Bytes that an op keeps from tile to tile.
  static uint64_t StateBytesOf(const TileFusion& fusion, const TileOp& op);

  TileRunner(const TileFusion& fusion, const RunMemory& run, std::byte* scratch,
             uint64_t register_bytes)
      : fusion_(fusion), run_(run), spare_(scratch) {
    for (const uint32_t index : fusion.memory) {
      registers_.push_back(index == TileFusion::kNoMemory ? nullptr
                                                          : scratch + (index + 2) * register_bytes);
    }
    other_ = scratch + register_bytes;
    std::byte* next = scratch + (fusion.memories + 2) * register_bytes;
    for (const TileOp& op : fusion.ops) {
      states_.push_back(next);
      next += StateBytesOf(fusion, op);
      scales_ = std::max(scales_, next);
      if (op.kind != TileOp::Kind::kReduce) continue;
      if (!fusion.columns || fusion.columns->held) {
        const uint64_t width = fusion.columns ? fusion.columns->width : 1;
        reductions_.emplace_back(op.reduction, op.type, width, states_.back());
      } else {
        column_.emplace(op.reduction, op.type, fusion.columns->width, fusion.row, states_.back());
      }
    }
  }

  void RunOnce() {
    count_ = fusion_.tile_elements;
    for (const TileOp& op : fusion_.once) RunOp(op, nullptr);
  }

  // `rows` rows from `row`; or of one `count` elements from `begin` of it.
  void RunTile(uint64_t row, uint64_t rows, uint64_t begin, uint64_t count) {
    row_ = row;
    rows_ = rows;
    SetElements(row * fusion_.row + begin, begin, count);
    RunOps(begin + count == fusion_.row ? Pass::kWhole : Pass::kPart);
  }

  // A square; returns the number of its elements.
  uint64_t RunSquare(uint64_t index) {
    square_ = index;
    const Square square = SquareOf(fusion_.squares->view, index);
    rows_ = square.rows;
    SetElements(0, 0, square.columns);
    RunOps(Pass::kWhole);
    return full_;
  }

  // Of columns: the results from `inner` on, `rows` of them, of one `outer`. Until `stops`, which
  // is told how many elements were done, says so; false then.
  template <typename Stops>
  bool RunColumns(uint64_t outer, uint64_t inner, uint64_t rows, const Stops& stops) {
    if (!RunElements(outer, inner, rows, 0, fusion_.row, stops)) return false;
    RunOps(Pass::kEnd);
    return true;
  }
  // One chunk of all results of one `outer`, whose lanes are held. What it comes to goes to
  // `results`.
  template <typename Stops>
  bool RunChunk(uint64_t outer, uint64_t chunk, const Stops& stops, std::byte* results) {
    const uint64_t begin = chunk * kReductionChunk;
    const uint64_t end = std::min(begin + kReductionChunk, fusion_.row);
    if (!RunElements(outer, 0, fusion_.columns->inner, begin, end, stops)) return false;
    reductions_[0].Finish(results);
    return true;
  }
  // What is done with what all chunks came to.
  void EndChunks(uint64_t outer, const std::byte* results) {
    row_ = outer * fusion_.columns->inner;
    rows_ = fusion_.columns->inner;
    reductions_[0].Add(results, fusion_.columns->chunks);
    RunOps(Pass::kEnd);
  }

 private:
  static constexpr uint64_t kLine = 64;  // of a cache

  // The best of a row so far.
  struct Best {
    std::byte value[8];
    uint64_t index = 0;
    uint64_t seen = 0;
  };
  // What is done of a tile's ops: all of them; all but what waits for the end of the rows; or, of
  // columns, what is done with the rows' results.
  enum class Pass : uint8_t { kWhole, kPart, kEnd };

  // The tile's elements: `count` of each row from `begin` on, in the loop from `first` on.
  void SetElements(uint64_t first, uint64_t begin, uint64_t count) {
    first_full_ = first;
    begin_ = begin;
    columns_ = count;
    full_ = rows_ * count;
  }

  // What the next tile reads, from element `first` on: each row of it is in another page, so that
  // the CPU does not guess it.
  void Fetch(uint64_t first) {
    for (const TileOp& op : fusion_.ops) {
      if (op.kind != TileOp::Kind::kLink || op.level != TileLevel::kFull) continue;
      const uint64_t size = TileBytesOf(op.type);
      const std::byte* const from = run_.Read(op.where) + first * size;
      for (uint64_t at = 0; at < rows_ * size; at += kLine) __builtin_prefetch(from + at, 0, 2);
    }
  }

  template <typename Stops>
  bool RunElements(uint64_t outer, uint64_t inner, uint64_t rows, uint64_t begin, uint64_t end,
                   const Stops& stops) {
    const Columns& columns = *fusion_.columns;
    row_ = outer * columns.inner + inner;
    rows_ = rows;
    const auto first_of = [&](uint64_t at) {
      return (outer * fusion_.row + at) * columns.inner + inner;
    };
    const auto goes_on = [&](uint64_t at, uint64_t steps) {
      SetElements(first_of(at), at, steps);
      RunOps(Pass::kPart);
      return !stops(full_);
    };
    if (column_) {
      return column_->Run(rows, [&](uint64_t at, uint64_t next) {
        if (next < end) Fetch(first_of(next));
        return goes_on(at, 1);
      });
    }
    for (uint64_t at = begin; at < end; at += columns.steps) {
      if (!goes_on(at, std::min(columns.steps, end - at))) return false;
    }
    return true;
  }

  void RunOps(Pass pass) {
    pass_ = pass;
    size_t reduction = 0;
    for (size_t i = 0; i < fusion_.ops.size(); ++i) {
      const TileOp& op = fusion_.ops[i];
      const bool reduces = op.kind == TileOp::Kind::kReduce;
      OrderedReduction* const ordered = reduces && !column_ ? &reductions_[reduction++] : nullptr;
      if (op.at_row_end && pass == Pass::kPart) continue;
      const bool row = op.level == TileLevel::kRow;
      if (pass == Pass::kEnd && !row && !reduces && op.kind != TileOp::Kind::kArgmax) continue;
      state_ = states_[i];
      first_ = row ? row_ : first_full_;
      count_ = row || pass == Pass::kEnd ? rows_ : full_;
      RunOp(op, ordered);
    }
  }

  void RunOp(const TileOp& op, OrderedReduction* reduction) {
    const auto in = [&](size_t i) -> const std::byte* {
      return op.in.size() > i ? registers_[op.in[i]] : nullptr;
    };
    std::byte* out = op.out.empty() ? nullptr : registers_[op.out[0]];
    switch (op.kind) {
      case TileOp::Kind::kLoad:
        if (op.level == TileLevel::kOnce) return LoadOnce(op, out);
        return Load(op, op.type, first_, count_, out);
      case TileOp::Kind::kFill:
        return Fill(op.type, op.code, out);
      case TileOp::Kind::kLink:
        registers_[op.out[0]] =
            const_cast<std::byte*>(run_.Read(op.where)) + First(op) * TileBytesOf(op.type);
        return;
      case TileOp::Kind::kPlaces:
        return Places(op, out);
      case TileOp::Kind::kRandom:
        return Random(op, in(0), in(1), out);
      case TileOp::Kind::kKernel:
        return op.kernel(in(0), in(1), in(2), out, count_);
      case TileOp::Kind::kConvert:
        return ConvertTile(op.from, in(0), op.type, out, op.mode, op.kernel);
      case TileOp::Kind::kChain:
        return RunChain(op);
      case TileOp::Kind::kSpread:
        return Spread(op, in(0), out);
      case TileOp::Kind::kReduce:
        return fusion_.columns ? ReduceColumns(op, in(0), reduction, out)
                               : Reduce(op, in(0), *reduction, out);
      case TileOp::Kind::kArgmax:
        return fusion_.columns ? ArgmaxColumns(op, in(0), out) : Argmax(op, in(0), out);
      case TileOp::Kind::kQuantize:
        return Quantize(op, in(0), in(1), out, registers_[op.out[1]]);
      case TileOp::Kind::kDequantize:
        return Dequantize(op, in(0), in(1), out);
      case TileOp::Kind::kStore:
        return Store(op, in(0));
      case TileOp::Kind::kAccumulate: {
        const uint64_t first = First(op);
        const uint64_t count = Count(op);
        Load(op, op.from, first, count, spare_);
        op.kernel(spare_, in(0), nullptr, spare_, count);
        return Put(op, first, count, spare_);
      }
    }
  }

  // Of one scale each: blocks of a row, those of the tile.
  uint64_t BlocksOf(uint64_t elements, const BlockFormat& format) const {
    return ScaleColumns(elements, format.block);
  }
  uint64_t First(const TileOp& op) const {
    if (op.level != TileLevel::kBlock) return first_;
    return row_ * BlocksOf(fusion_.row, op.format) + begin_ / op.format.block;
  }
  uint64_t Count(const TileOp& op) const {
    return op.level != TileLevel::kBlock ? count_ : rows_ * BlocksOf(columns_, op.format);
  }

  void Fill(DType type, uint64_t code, std::byte* out) {
    const View all = {0, {static_cast<int64_t>(count_)}, {0}};
    // Of a tile, in which an element of four bits has a byte too.
    const DType stored = type == DType::kF4E2M1FN ? DType::kU8 : type;
    Gather(stored, reinterpret_cast<const std::byte*>(&code), all, 0, count_, out);
  }

  void LoadOnce(const TileOp& op, std::byte* out) {
    uint64_t code = 0;
    Gather(op.type, run_.Read(op.where), op.views, 0, 1, reinterpret_cast<std::byte*>(&code));
    Fill(op.type, code, out);
  }

  Square SquareOf(const View& view, uint64_t index) const {
    return compute::SquareOf(*fusion_.squares, view, index);
  }
  Square SquareOf(const TileOp& op) const { return SquareOf(op.views[0], square_); }
  void Load(const TileOp& op, DType type, uint64_t first, uint64_t count, std::byte* out) const {
    const std::byte* const from = run_.Read(op.where);
    if (fusion_.squares) {
      if (square_ + 1 < fusion_.squares->Count()) {
        FetchSquare(type, from, SquareOf(op.views[0], square_ + 1));
      }
      return GatherSquare(type, from, SquareOf(op), out);
    }
    Gather(type, from, op.views, first, count, out);
  }
  void Put(const TileOp& op, uint64_t first, uint64_t count, const std::byte* in) const {
    std::byte* const to = run_.Write(op.where);
    if (fusion_.squares) return ScatterSquare(op.from, to, SquareOf(op), in);
    Scatter(op.from, to, op.views[0], first, count, in);
  }
  // A half byte too many is 0, in the square that has the last element.
  void EndSquare(const TileOp& op, std::byte* to) const {
    const View& view = op.views[0];
    const uint64_t end = static_cast<uint64_t>(view.offset) + ElementsOf(view);
    if (!IsDense(view) || end % 2 == 0 || square_ + 1 != fusion_.squares->Count()) return;
    to[end / 2] &= std::byte{0xF};
  }

  void Store(const TileOp& op, const std::byte* in) {
    std::byte* to = run_.Write(op.where);
    const uint64_t first = First(op);
    const uint64_t count = Count(op);
    Put(op, first, count, in);
    if (fusion_.squares && op.from == DType::kF4E2M1FN) return EndSquare(op, to);
    if (op.from != DType::kF4E2M1FN || !IsDense(op.views[0])) return;
    // A half byte too many is 0.
    const uint64_t end = static_cast<uint64_t>(op.views[0].offset) + first + count;
    if (first + count == ElementsOf(op.views[0]) && end % 2 != 0) to[end / 2] &= std::byte{0xF};
  }

  void Places(const TileOp& op, std::byte* out) {
    auto* places = reinterpret_cast<int64_t*>(spare_);
    const bool once = op.level == TileLevel::kOnce;
    if (fusion_.squares && !once) {
      PlacesOfSquare(SquareOf(op), places);
    } else {
      PlacesOf(op.views, once ? 0 : first_, once ? 1 : count_, places);
    }
    if (once) std::fill_n(places, count_, places[0]);
    Convert(DType::kI64, spare_, op.type, out, count_);
  }

  void Random(const TileOp& op, const std::byte* key_bytes, const std::byte* counter_bytes,
              std::byte* out) {
    PhiloxKey key;
    PhiloxBlock counter;
    std::memcpy(key.words.data(), key_bytes, sizeof(uint64_t));
    std::memcpy(counter.words.data(), counter_bytes, sizeof(uint64_t));
    const uint64_t size = TileBytesOf(op.type);
    RandomBytes(key, counter, first_ * size, out, count_ * size);
  }

  void ConvertTile(DType from, const std::byte* in, DType to, std::byte* out, ConvertMode mode,
                   TileKernel kernel) {
    if (kernel != nullptr) return kernel(in, nullptr, nullptr, out, count_);
    if (from == to) {
      std::memcpy(out, in, count_ * TileBytesOf(to));
    } else if (from == DType::kF4E2M1FN) {
      Pack(in, count_, spare_);
      Convert(from, spare_, to, out, count_, mode);
    } else if (to == DType::kF4E2M1FN) {
      Convert(from, in, to, spare_, count_, mode);
      Unpack(spare_, count_, out);
    } else {
      Convert(from, in, to, out, count_, mode);
    }
  }

  void RunChain(const TileOp& op) {
    steps_.clear();
    for (const ChainLink& link : op.chain) {
      const bool none = link.operand == TileFusion::kNoMemory;
      steps_.push_back({link.code, link.form, none ? nullptr : registers_[link.operand]});
    }
    chain_(steps_.data(), steps_.size(), count_);
  }

  void Spread(const TileOp& op, const std::byte* in, std::byte* out) {
    const View view = {0, {static_cast<int64_t>(rows_), static_cast<int64_t>(columns_)}, {1, 0}};
    const DType stored = op.type == DType::kF4E2M1FN ? DType::kU8 : op.type;
    Gather(stored, in, view, 0, full_, out);
  }

  void Reduce(const TileOp& op, const std::byte* in, OrderedReduction& reduction,
              std::byte* results) {
    const std::byte* elements = in;
    if (op.from != op.type) {
      ConvertTile(op.from, in, op.type, spare_, {}, op.kernel);
      elements = spare_;
    }
    for (uint64_t row = 0; row < rows_; ++row) {
      reduction.Add(elements + row * columns_ * TileBytesOf(op.type), columns_);
      if (begin_ + columns_ != fusion_.row) return;
      uint64_t sum = 0;
      reduction.Finish(reinterpret_cast<std::byte*>(&sum));
      Convert(op.type, reinterpret_cast<const std::byte*>(&sum), op.from,
              results + row * TileBytesOf(op.from), 1);
    }
  }

  void ReduceColumns(const TileOp& op, const std::byte* in, OrderedReduction* held,
                     std::byte* results) {
    if (pass_ == Pass::kEnd) {
      held != nullptr ? held->Finish(spare_) : column_->Finish(spare_);
      return ConvertTile(op.type, spare_, op.from, results, {}, ConvertKernelOf(op.type, op.from));
    }
    const std::byte* elements = in;
    if (op.from != op.type) {
      ConvertTile(op.from, in, op.type, spare_, {}, op.kernel);
      elements = spare_;
    }
    held != nullptr ? held->Add(elements, columns_) : column_->Put(elements);
  }

  void ArgmaxColumns(const TileOp& op, const std::byte* in, std::byte* results) {
    std::byte* const best = state_;
    auto* const index =
        reinterpret_cast<uint64_t*>(state_ + Aligned(fusion_.columns->width * sizeof(uint64_t)));
    if (begin_ == 0 && pass_ == Pass::kPart) std::fill_n(index, rows_, 0);
    if (pass_ == Pass::kEnd) {
      const size_t size = TileBytesOf(op.type);
      for (uint64_t i = 0; i < rows_; ++i) std::memcpy(results + i * size, &index[i], size);
      return;
    }
    const LargerKernel larger = LargerKernelOf(op.from);
    const uint64_t bytes = rows_ * TileBytesOf(op.from);
    for (uint64_t i = 0; i < columns_; ++i, in += bytes) {
      if (begin_ + i == 0) {
        std::memcpy(best, in, bytes);
      } else {
        larger(in, begin_ + i, best, index, rows_);
      }
    }
  }

  void Argmax(const TileOp& op, const std::byte* in, std::byte* results) {
    Best& best = *reinterpret_cast<Best*>(state_);
    if (begin_ == 0) best = Best();
    const size_t size = TileBytesOf(op.from);
    const ArgmaxKernel largest = ArgmaxKernelOf(op.from);
    for (uint64_t row = 0; row < rows_; ++row) {
      if (columns_ > 0) {
        const std::byte* elements = in + row * columns_ * size;
        const uint64_t index = largest(elements, columns_);
        std::byte both[16];
        std::memcpy(both, best.value, size);
        std::memcpy(both + size, elements + index * size, size);
        if (best.seen == 0 || largest(both, 2) == 1) {
          std::memcpy(best.value, elements + index * size, size);
          best.index = best.seen + index;
        }
        best.seen += columns_;
      }
      if (begin_ + columns_ != fusion_.row) return;
      std::memcpy(results + row * TileBytesOf(op.type), &best.index, TileBytesOf(op.type));
      best = Best();
    }
  }

  static float GlobalOf(const std::byte* in) {
    float global = 1;
    if (in != nullptr) std::memcpy(&global, in, sizeof(global));
    return global;
  }

  void Quantize(const TileOp& op, const std::byte* in, const std::byte* global, std::byte* out,
                std::byte* scales) {
    const bool direct = op.from == DType::kF32 || op.from == DType::kBF16;
    if (!direct) ConvertTile(op.from, in, DType::kF32, spare_, {}, op.kernel);
    const bool packed = op.format.element == DType::kF4E2M1FN;
    QuantizeBlocksFast(op.format, op.mode.scale_rounding, direct ? op.from : DType::kF32,
                       direct ? in : spare_, rows_, columns_, packed ? other_ : out, scales,
                       GlobalOf(global));
    if (packed) Unpack(other_, full_, out);
  }

  void Dequantize(const TileOp& op, const std::byte* in, const std::byte* global, std::byte* out) {
    const uint64_t columns = BlocksOf(columns_, op.format);
    const auto row_scales = static_cast<uint64_t>(op.views[0].dims.back());
    const std::byte* scales = run_.Read(op.where);
    const uint64_t first = row_ * row_scales + begin_ / op.format.block;
    if (rows_ == 1 && op.views.size() == 1 && IsDense(op.views[0])) {
      scales += static_cast<uint64_t>(op.views[0].offset) + first;
    } else {
      for (uint64_t row = 0; row < rows_; ++row) {
        Gather(op.format.scale, scales, op.views, first + row * row_scales, columns,
               scales_ + row * columns);
      }
      scales = scales_;
    }
    const std::byte* elements = in;
    if (op.format.element == DType::kF4E2M1FN) {
      Pack(in, full_, other_);
      elements = other_;
    }
    const bool direct = op.type == DType::kF32 || op.type == DType::kBF16;
    DequantizeBlocksFast(op.format, elements, scales, columns, rows_, columns_,
                         direct ? op.type : DType::kF32, direct ? out : spare_, GlobalOf(global));
    if (!direct) ConvertTile(DType::kF32, spare_, op.type, out, {}, op.kernel);
  }

  const TileFusion& fusion_;
  const RunMemory& run_;
  std::byte* spare_;
  std::byte* other_;
  std::byte* scales_ = nullptr;
  std::vector<std::byte*> registers_;
  std::vector<std::byte*> states_;  // by op
  std::vector<OrderedReduction> reductions_;
  std::optional<ColumnReduction> column_;
  std::vector<ChainStep> steps_;
  const ChainKernel chain_ = ChainKernelOfCpu();
  // The tile.
  uint64_t row_ = 0;
  uint64_t rows_ = 0;
  uint64_t begin_ = 0;    // in the row
  uint64_t columns_ = 0;  // of each row
  uint64_t full_ = 0;     // elements
  uint64_t first_full_ = 0;
  uint64_t square_ = 0;  // its number
  Pass pass_ = Pass::kWhole;
  // What the op at hand has to do with.
  uint64_t first_ = 0;
  uint64_t count_ = 0;
  std::byte* state_ = nullptr;
};

inline uint64_t TileRunner::StateBytesOf(const TileFusion& fusion, const TileOp& op) {
  const std::optional<Columns>& columns = fusion.columns;
  if (op.kind == TileOp::Kind::kReduce) {
    return !columns        ? OrderedReduction::MemoryFor(1, fusion.row)
           : columns->held ? OrderedReduction::MemoryFor(columns->width, fusion.row)
                           : Aligned(ColumnReduction::MemoryFor(columns->width, fusion.row));
  }
  if (op.kind != TileOp::Kind::kArgmax) return 0;
  // Of columns the best values, and where they were.
  return columns ? Aligned(columns->width * 8) + Aligned(columns->width * sizeof(uint64_t))
                 : kAlignment;
}

}  // namespace ferry::compute
