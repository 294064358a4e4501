// SPDX-License-Identifier: Apache-2.0
// Ops over as many elements, run a tile at a time: what one makes for the next stays in a register
// of a tile's size, in the first cache. Plain data, made by HostProgram's planner; any thread runs
// it, in memory of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "compute/host/kernels.h"
#include "compute/host/view.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {

inline constexpr uint64_t kTileElements = 512;
inline constexpr uint64_t kRegisterBytes = kTileElements * 8;

// Where bytes are in a run.
struct Location {
  enum class Kind : uint8_t { kNone, kArena, kBuffer, kConstant };
  Kind kind = Kind::kNone;
  uint32_t buffer = 0;
  uint64_t offset = 0;
};

// What a run was given.
struct RunMemory {
  absl::Span<const absl::Span<std::byte>> buffers;
  std::byte* arena = nullptr;
  const std::byte* constants = nullptr;

  const std::byte* Read(const Location& at) const;
  std::byte* Write(const Location& at) const;
};

struct TileOp {
  enum class Kind : uint8_t {
    kLoad,        // view of `where` to out
    kLoadScalar,  // element 0 of `where` to all of out, before the first tile
    kFill,        // `code` to all of out, before the first tile
    kLink,        // out is a dense tensor's own memory at `where`
    kIota,
    kKernel,
    kConvert,
    kStore,       // in[0] to the view of `where`
    kAccumulate,  // added to what is there
    kReduce,      // rows of in[0], a result each, to `where`
  };
  Kind kind = Kind::kKernel;
  DType from = DType::kF32;  // of in[0]
  DType type = DType::kF32;  // of what is made; of a reduction, in which it is made
  std::array<uint32_t, 3> in = {};
  uint32_t out = 0;
  TileKernel kernel = nullptr;
  ConvertMode mode;
  Location where;
  View view;
  size_t dimension = 0;  // of kIota
  uint64_t code = 0;
  Reduction reduction = Reduction::kSum;
};

struct TileGroup {
  static constexpr uint32_t kNoMemory = std::numeric_limits<uint32_t>::max();

  uint64_t elements = 0;
  uint64_t row = 0;  // of its reductions; 0: there are none, or of nothing
  std::vector<TileOp> ops;
  std::vector<uint32_t> memory;  // by register: which of those in scratch; kNoMemory: a link
  uint32_t memories = 0;

  uint64_t ScratchBytes() const;
  void Run(const RunMemory& run, std::byte* scratch) const;
};

}  // namespace ferry::compute
