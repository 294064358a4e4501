// SPDX-License-Identifier: Apache-2.0
#include "compute/host/tile_group.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "compute/host/reduction.h"

namespace ferry::compute {
namespace {

// One run of a group. In scratch: what ops have between, the registers, what reductions hold.
struct Runner {
  const TileGroup& group;
  const RunMemory& run;
  std::byte* spare;
  std::vector<std::byte*> registers;
  std::vector<OrderedReduction> reductions;
  uint64_t begin = 0;
  uint64_t count = 0;

  void RunOp(const TileOp& op, size_t& reduction) {
    std::byte* out = registers[op.out];
    const std::byte* in = registers[op.in[0]];
    switch (op.kind) {
      case TileOp::Kind::kLoad:
        return Gather(op.type, run.Read(op.where), op.view, begin, count, out);
      case TileOp::Kind::kLink:
        registers[op.out] =
            const_cast<std::byte*>(run.Read(op.where)) + begin * TileBytesOf(op.type);
        return;
      case TileOp::Kind::kIota:
        return Iota(op, out);
      case TileOp::Kind::kKernel:
        return op.kernel(in, registers[op.in[1]], registers[op.in[2]], out, count);
      case TileOp::Kind::kConvert:
        return ConvertTile(op.from, in, op.type, out, op.mode, op.kernel);
      case TileOp::Kind::kStore:
        return Store(op, in);
      case TileOp::Kind::kAccumulate:
        Gather(op.from, run.Read(op.where), op.view, begin, count, spare);
        op.kernel(spare, in, nullptr, spare, count);
        return Scatter(op.from, run.Write(op.where), op.view, begin, count, spare);
      case TileOp::Kind::kReduce:
        return Reduce(op, in, reductions[reduction++]);
      case TileOp::Kind::kLoadScalar:
      case TileOp::Kind::kFill:
        return;  // was done
    }
  }

  void Store(const TileOp& op, const std::byte* in) {
    std::byte* to = run.Write(op.where);
    Scatter(op.from, to, op.view, begin, count, in);
    const uint64_t end = begin + count;  // a half byte too many is 0
    const bool half = op.from == DType::kF4E2M1FN && end == group.elements && end % 2 != 0;
    if (half) to[end / 2] &= std::byte{0xF};
  }

  void Fill(const TileOp& op) {
    uint64_t code = op.code;
    if (op.kind == TileOp::Kind::kLoadScalar) {
      Gather(op.type, run.Read(op.where), View(), 0, 1, reinterpret_cast<std::byte*>(&code));
    }
    const View all = {0, {static_cast<int64_t>(kTileElements)}, {0}};
    // Of a tile, in which an element of four bits has a byte too.
    const DType type = op.type == DType::kF4E2M1FN ? DType::kU8 : op.type;
    Gather(type, reinterpret_cast<const std::byte*>(&code), all, 0, kTileElements,
           registers[op.out]);
  }

  void Iota(const TileOp& op, std::byte* out) {
    uint64_t inner = 1;
    for (size_t d = op.dimension + 1; d < op.view.dims.size(); ++d) {
      inner *= static_cast<uint64_t>(op.view.dims[d]);
    }
    const auto dim = static_cast<uint64_t>(op.view.dims[op.dimension]);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t value = (begin + i) / inner % dim;
      std::memcpy(spare + i * sizeof(value), &value, sizeof(value));
    }
    Convert(DType::kU64, spare, op.type, out, count);
  }

  void ConvertTile(DType from, const std::byte* in, DType to, std::byte* out, ConvertMode mode,
                   TileKernel kernel) {
    if (kernel != nullptr) return kernel(in, nullptr, nullptr, out, count);
    if (from == to) {
      std::memcpy(out, in, count * TileBytesOf(to));
    } else if (from == DType::kF4E2M1FN) {
      Pack(in, count, spare);
      Convert(from, spare, to, out, count, mode);
    } else if (to == DType::kF4E2M1FN) {
      Convert(from, in, to, spare, count, mode);
      Unpack(spare, count, out);
    } else {
      Convert(from, in, to, out, count, mode);
    }
  }

  void Reduce(const TileOp& op, const std::byte* in, OrderedReduction& reduction) {
    const std::byte* elements = in;
    if (op.from != op.type) {
      ConvertTile(op.from, in, op.type, spare, {}, op.kernel);
      elements = spare;
    }
    for (uint64_t done = 0; done < count;) {
      const uint64_t in_row = (begin + done) % group.row;
      const uint64_t some = std::min(group.row - in_row, count - done);
      reduction.Add(elements + done * TileBytesOf(op.type), some);
      done += some;
      if (in_row + some == group.row) Finish(op, reduction, (begin + done) / group.row - 1);
    }
  }

  void Finish(const TileOp& op, OrderedReduction& reduction, uint64_t result) {
    uint64_t sum = 0;
    reduction.Finish(reinterpret_cast<std::byte*>(&sum));
    Convert(op.type, reinterpret_cast<const std::byte*>(&sum), op.from,
            run.Write(op.where) + result * TileBytesOf(op.from), 1);
  }
};

}  // namespace

const std::byte* RunMemory::Read(const Location& at) const {
  return at.kind == Location::Kind::kConstant ? constants + at.offset : Write(at);
}

std::byte* RunMemory::Write(const Location& at) const {
  if (at.kind == Location::Kind::kBuffer) return buffers[at.buffer].data() + at.offset;
  return arena + at.offset;
}

uint64_t TileGroup::ScratchBytes() const {
  const auto reductions = std::count_if(
      ops.begin(), ops.end(), [](const TileOp& op) { return op.kind == TileOp::Kind::kReduce; });
  return (memories + 1) * kRegisterBytes +
         static_cast<uint64_t>(reductions) * OrderedReduction::kMemory;
}

void TileGroup::Run(const RunMemory& run, std::byte* scratch) const {
  Runner runner{*this, run, scratch, {}, {}};
  std::byte* next = scratch + (memories + 1) * kRegisterBytes;
  for (const uint32_t index : memory) {
    runner.registers.push_back(index == kNoMemory ? nullptr
                                                  : scratch + (index + 1) * kRegisterBytes);
  }
  for (const TileOp& op : ops) {
    if (op.kind == TileOp::Kind::kLoadScalar || op.kind == TileOp::Kind::kFill) runner.Fill(op);
    if (op.kind != TileOp::Kind::kReduce) continue;
    runner.reductions.emplace_back(op.reduction, op.type, next);
    next += OrderedReduction::kMemory;
    if (elements > 0) continue;
    // Of rows of nothing.
    const uint64_t results = ElementsOf(op.view);
    for (uint64_t i = 0; i < results; ++i) runner.Finish(op, runner.reductions.back(), i);
  }
  // Whole rows, or parts of one.
  const uint64_t tile = row == 0 || row > kTileElements ? kTileElements : kTileElements / row * row;
  while (runner.begin < elements) {
    const uint64_t left = row > kTileElements ? row - runner.begin % row : elements - runner.begin;
    runner.count = std::min(tile, left);
    size_t reduction = 0;
    for (const TileOp& op : ops) runner.RunOp(op, reduction);
    runner.begin += runner.count;
  }
}

}  // namespace ferry::compute
