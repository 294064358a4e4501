// SPDX-License-Identifier: Apache-2.0
// A kernel of a plan, run a tile at a time: what one op makes for the next stays in a register of a
// tile's size, in the first cache. Plain data, made by GroupBuilder; any thread runs it, in memory
// of its own.
// A kernel goes through `rows` rows of `row` elements. A tile is some whole rows, or a part of one;
// values of a tile are of all its elements, one of each row, one of each block of a row (scales),
// or the same for all.
// Invariant: memory that is written is read by nobody but loads and links of the same tile, which
// come first, and by what was there before the first tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "compute/host/chain.h"
#include "compute/host/kernels.h"
#include "compute/host/run_control.h"
#include "compute/host/view.h"
#include "compute/host/workers.h"
#include "compute/numerics/block.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {

inline constexpr uint64_t kTileElements = 512;

// Where bytes are in a run.
struct Location {
  enum class Kind : uint8_t { kArena, kBuffer, kConstant, kKept };
  Kind kind = Kind::kArena;
  uint32_t buffer = 0;
  uint64_t offset = 0;
};

// What a run was given.
struct RunMemory {
  absl::Span<const absl::Span<std::byte>> buffers;
  std::byte* arena = nullptr;
  const std::byte* constants = nullptr;
  std::byte* kept = nullptr;
  RunControl* control = nullptr;  // none: the run goes to its end

  const std::byte* Read(const Location& at) const;
  std::byte* Write(const Location& at) const;
};

enum class TileLevel : uint8_t { kOnce, kFull, kRow, kBlock };

// A step of a chain; without operand kNoMemory.
struct ChainLink {
  ChainCode code = ChainCode::kLoad;
  ChainForm form = ChainForm::kF32;
  uint32_t operand = 0;
};

struct TileOp {
  enum class Kind : uint8_t {
    kLoad,        // views of `where`
    kFill,        // `code` to all
    kLink,        // out is a dense tensor's own memory at `where`
    kPlaces,      // the places that views say: of iota
    kRandom,      // of in[0], the key, and in[1], the counter
    kKernel,      // of up to three
    kConvert,     // in[0]
    kChain,       // several of those
    kSpread,      // of in[0], one of each row, the rows
    kReduce,      // of rows of in[0] one each
    kArgmax,      // the same
    kQuantize,    // in[0], divided by in[1] if there is one: elements and scales
    kDequantize,  // in[0] with scales at `where`, times in[1] if there is one
    kStore,       // in[0] to the view of `where`
    kAccumulate,  // added to what is there
  };
  Kind kind = Kind::kKernel;
  TileLevel level = TileLevel::kFull;  // of what it does
  bool at_row_end = false;             // rows that are no tile: after the last of one
  DType from = DType::kF32;            // of in[0]
  DType type = DType::kF32;            // of what is made; of a reduction, in which it is made
  std::vector<uint32_t> in;
  std::vector<uint32_t> out;
  Op op = Op::kAdd;  // of a kernel
  TileKernel kernel = nullptr;
  std::vector<ChainLink> chain;
  ConvertMode mode;
  Location where;
  Views views;
  uint64_t code = 0;
  Reduction reduction = Reduction::kSum;
  BlockFormat format;
  uint64_t scale_bytes = 0;  // in a tile, of each row, at most
};

struct TileGroup {
  static constexpr uint32_t kNoMemory = std::numeric_limits<uint32_t>::max();

  uint64_t rows = 1;
  uint64_t row = 0;
  bool has_rows = false;       // does anything look at them?
  bool keeps_rows = false;     // does a reduction or anything done once a row?
  uint64_t tile_rows = 1;      // whole rows in a tile
  uint64_t tile_elements = 0;  // at most; fewer than a row: a part of it
  size_t element_bytes = 1;    // of a register, at most
  bool shares_bytes = false;   // elements of different tiles may be in one byte: two tiles are done
                               // by the same thread
  bool alone = false;          // all of them are

  uint64_t launch_elements =
      std::numeric_limits<uint64_t>::max();  // that a thread does before it asks

  std::vector<TileOp> once;  // before the first tile, as if of one
  std::vector<TileOp> ops;
  std::vector<uint32_t> memory;  // by register: which of those in scratch; kNoMemory: a link
  uint32_t memories = 0;

  bool IsEmpty() const { return rows == 0 || (row == 0 && !keeps_rows); }
  // Of one part.
  uint64_t ScratchBytes() const;
  // In up to `parts` parts, with scratch for each. The same bits however many. Left half done if
  // the run stops.
  void Run(const RunMemory& run, std::byte* scratch, size_t parts, Workers* workers) const;

 private:
  uint64_t RegisterBytes() const;
  // What parts may be made of: some whole rows, a row, or a tile of one.
  uint64_t Units() const;
  void RunUnits(const RunMemory& run, std::byte* scratch, uint64_t begin, uint64_t end) const;
};

}  // namespace ferry::compute
