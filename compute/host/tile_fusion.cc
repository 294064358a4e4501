// SPDX-License-Identifier: Apache-2.0
#include "compute/host/tile_fusion.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compute/host/block_loops.h"
#include "compute/host/reduction.h"
#include "compute/numerics/philox.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kLeastPart = 16384;  // elements that are worth another thread

// The best of a row so far.
struct Best {
  std::byte value[8];
  uint64_t index = 0;
  uint64_t seen = 0;
};

constexpr uint64_t Aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t StateBytesOf(const TileOp& op) {
  if (op.kind == TileOp::Kind::kReduce) return OrderedReduction::kMemory;
  return op.kind == TileOp::Kind::kArgmax ? kAlignment : 0;
}

// One thread's run of a fusion. In scratch: what ops have between, the registers, what reductions
// hold, scales.
class Runner {
 public:
  Runner(const TileFusion& fusion, const RunMemory& run, std::byte* scratch,
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
      next += StateBytesOf(op);
      scales_ = std::max(scales_, next);
      if (op.kind == TileOp::Kind::kReduce) {
        reductions_.emplace_back(op.reduction, op.type, states_.back());
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
    begin_ = begin;
    const bool ends = begin + count == fusion_.row;
    full_ = rows * count;
    size_t reduction = 0;
    for (size_t i = 0; i < fusion_.ops.size(); ++i) {
      const TileOp& op = fusion_.ops[i];
      OrderedReduction* reduces =
          op.kind == TileOp::Kind::kReduce ? &reductions_[reduction++] : nullptr;
      if (op.at_row_end && !ends) continue;
      state_ = states_[i];
      columns_ = count;
      if (op.level == TileLevel::kRow) {
        first_ = row;
        count_ = rows;
      } else {
        first_ = row * fusion_.row + begin;
        count_ = full_;
      }
      RunOp(op, reduces);
    }
  }

 private:
  void RunOp(const TileOp& op, OrderedReduction* reduction) {
    const auto in = [&](size_t i) -> const std::byte* {
      return op.in.size() > i ? registers_[op.in[i]] : nullptr;
    };
    std::byte* out = op.out.empty() ? nullptr : registers_[op.out[0]];
    switch (op.kind) {
      case TileOp::Kind::kLoad:
        if (op.level == TileLevel::kOnce) return LoadOnce(op, out);
        return Gather(op.type, run_.Read(op.where), op.views, first_, count_, out);
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
        return Reduce(op, in(0), *reduction, out);
      case TileOp::Kind::kArgmax:
        return Argmax(op, in(0), out);
      case TileOp::Kind::kQuantize:
        return Quantize(op, in(0), in(1), out, registers_[op.out[1]]);
      case TileOp::Kind::kDequantize:
        return Dequantize(op, in(0), in(1), out);
      case TileOp::Kind::kStore:
        return Store(op, in(0));
      case TileOp::Kind::kAccumulate: {
        const uint64_t first = First(op);
        const uint64_t count = Count(op);
        Gather(op.from, run_.Read(op.where), op.views, first, count, spare_);
        op.kernel(spare_, in(0), nullptr, spare_, count);
        return Scatter(op.from, run_.Write(op.where), op.views[0], first, count, spare_);
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

  void Store(const TileOp& op, const std::byte* in) {
    std::byte* to = run_.Write(op.where);
    const uint64_t first = First(op);
    const uint64_t count = Count(op);
    Scatter(op.from, to, op.views[0], first, count, in);
    if (op.from != DType::kF4E2M1FN || !IsDense(op.views[0])) return;
    // A half byte too many is 0.
    const uint64_t end = static_cast<uint64_t>(op.views[0].offset) + first + count;
    if (first + count == ElementsOf(op.views[0]) && end % 2 != 0) to[end / 2] &= std::byte{0xF};
  }

  void Places(const TileOp& op, std::byte* out) {
    auto* places = reinterpret_cast<int64_t*>(spare_);
    const bool once = op.level == TileLevel::kOnce;
    PlacesOf(op.views, once ? 0 : first_, once ? 1 : count_, places);
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
  std::vector<ChainStep> steps_;
  const ChainKernel chain_ = ChainKernelOfCpu();
  // The tile.
  uint64_t row_ = 0;
  uint64_t rows_ = 0;
  uint64_t begin_ = 0;    // in the row
  uint64_t columns_ = 0;  // of each row
  uint64_t full_ = 0;     // elements
  // What the op at hand has to do with.
  uint64_t first_ = 0;
  uint64_t count_ = 0;
  std::byte* state_ = nullptr;
};

}  // namespace

const std::byte* RunMemory::Read(const Location& at) const {
  return at.kind == Location::Kind::kConstant ? constants + at.offset : Write(at);
}

std::byte* RunMemory::Write(const Location& at) const {
  if (at.kind == Location::Kind::kBuffer) return buffers[at.buffer].data() + at.offset;
  return (at.kind == Location::Kind::kFromConstants ? from_constants : scratch) + at.offset;
}

uint64_t TileFusion::RegisterBytes() const { return Aligned(tile_elements * element_bytes); }

uint64_t TileFusion::ScratchBytes() const {
  uint64_t bytes = (memories + 2) * RegisterBytes();
  uint64_t scales = 0;
  for (const TileOp& op : ops) {
    bytes += StateBytesOf(op);
    scales = std::max(scales, Aligned(op.scale_bytes));
  }
  return bytes + scales;
}

uint64_t TileFusion::Units() const {
  if (row <= tile_elements) return (rows + tile_rows - 1) / tile_rows;
  return keeps_rows ? rows : rows * ((row + tile_elements - 1) / tile_elements);
}

void TileFusion::RunUnits(const RunMemory& run, std::byte* scratch, uint64_t begin,
                          uint64_t end) const {
  Runner runner(*this, run, scratch, RegisterBytes());
  runner.RunOnce();
  const uint64_t tiles = tile_elements == 0 ? 1 : (row + tile_elements - 1) / tile_elements;
  uint64_t done = 0;  // since it was asked whether the run goes on
  const auto stops = [&](uint64_t elements) {
    done += elements;
    if (done < launch_elements || run.control == nullptr) return false;
    done = 0;
    return run.control->Stops();
  };
  for (uint64_t unit = begin; unit < end; ++unit) {
    if (row <= tile_elements) {
      const uint64_t first = unit * tile_rows;
      const uint64_t some = std::min(tile_rows, rows - first);
      runner.RunTile(first, some, 0, row);
      if (stops(some * std::max<uint64_t>(row, 1))) return;
      continue;
    }
    const uint64_t first = keeps_rows ? 0 : unit % tiles;
    for (uint64_t tile = first; tile < (keeps_rows ? tiles : first + 1); ++tile) {
      const uint64_t at = tile * tile_elements;
      const uint64_t some = std::min(tile_elements, row - at);
      runner.RunTile(keeps_rows ? unit : unit / tiles, 1, at, some);
      if (stops(some)) return;
    }
  }
}

void TileFusion::Run(const RunMemory& run, std::byte* scratch, size_t parts,
                     Workers* workers) const {
  if (IsEmpty()) return;
  const uint64_t units = Units();
  const uint64_t step = shares_bytes ? 2 : 1;
  const uint64_t most = std::min(units / step, rows * std::max<uint64_t>(row, 1) / kLeastPart);
  parts = alone ? 1 : std::max<uint64_t>(1, std::min<uint64_t>(parts, most));
  if (parts == 1 || workers == nullptr) return RunUnits(run, scratch, 0, units);
  const auto begin = [&](uint64_t part) { return units * part / parts / step * step; };
  workers->Run(parts, [&](size_t part) {
    RunUnits(run, scratch + part * ScratchBytes(), begin(part),
             part + 1 == parts ? units : begin(part + 1));
  });
}

}  // namespace ferry::compute
