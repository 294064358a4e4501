// SPDX-License-Identifier: Apache-2.0
// A kernel of a plan that runs a tile at a time: the result of one op stays in a register of a
// tile's size, in the first-level cache, for the next op. Plain data, made by FusionBuilder; any
// thread runs it, in memory of its own. A kernel goes through `rows` rows of `row` elements. A tile
// is some whole rows, or a part of one row. A value has, for a tile, all its elements, one for each
// row, one for each block of a row (scales), or one in all. Invariant: memory that is written is
// read only by loads and links of the same tile, which come first, and by what runs before the
// first tile. If the elements of a result do not follow each other in memory, but those of many
// results do, a tile is the same elements of many rows (Columns). If memory is read across, it is a
// square (Squares).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "compute/host/chain.h"
#include "compute/host/column_reduction.h"
#include "compute/host/kernels.h"
#include "compute/host/run_control.h"
#include "compute/host/square.h"
#include "compute/host/view.h"
#include "compute/host/workers.h"
#include "compute/numerics/block.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {

inline constexpr uint64_t kTileElements = 512;

// Where bytes are in a run.
struct Location {
  enum class Kind : uint8_t { kScratch, kBuffer, kConstant, kFromConstants };
  Kind kind = Kind::kScratch;
  uint32_t buffer = 0;
  uint64_t offset = 0;
};

// The memory that a run is given.
struct RunMemory {
  absl::Span<const absl::Span<std::byte>> buffers;
  std::byte* scratch = nullptr;
  const std::byte* constants = nullptr;
  std::byte* from_constants = nullptr;
  RunControl* control = nullptr;  // null: the run goes to its end

  const std::byte* Read(const Location& at) const;
  std::byte* Write(const Location& at) const;
};

enum class TileLevel : uint8_t { kOnce, kFull, kRow, kBlock };

// One step of a chain. `operand` is kNoMemory if the step has none.
struct ChainLink {
  ChainCode code = ChainCode::kLoad;
  ChainForm form = ChainForm::kF32;
  uint32_t operand = 0;
};

struct TileOp {
  enum class Kind : uint8_t {
    kLoad,        // the elements of `where` that `views` names
    kFill,        // `code` in all elements
    kLink,        // out is the memory itself of a dense tensor at `where`
    kPlaces,      // the positions that `views` names: of iota
    kRandom,      // random bits by in[0], the key, and in[1], the counter
    kKernel,      // `kernel` on up to three operands
    kConvert,     // in[0] to `type`
    kChain,       // several of kKernel and kConvert
    kSpread,      // in[0] has one element for each row: to all elements of the row
    kReduce,      // reduces each row of in[0] to one element
    kArgmax,      // the same, to an index
    kQuantize,    // in[0], divided by in[1] if there is one: to elements and scales
    kDequantize,  // in[0] with the scales at `where`, times in[1] if there is one
    kStore,       // in[0] to the view of `where`
    kAccumulate,  // as kStore, added to what is there
  };
  Kind kind = Kind::kKernel;
  TileLevel level = TileLevel::kFull;  // of what the op makes or does
  bool at_row_end = false;   // if a tile is a part of a row: done after the last tile of each row
  DType from = DType::kF32;  // type of in[0]
  DType type = DType::kF32;  // type of the result; of a reduction, the type that it is done in
  std::vector<uint32_t> in;
  std::vector<uint32_t> out;
  Op op = Op::kAdd;  // kKernel
  TileKernel kernel = nullptr;
  std::vector<ChainLink> chain;
  ConvertMode mode;
  Location where;
  Views views;
  uint64_t code = 0;
  Reduction reduction = Reduction::kSum;
  BlockFormat format;
  uint64_t scale_bytes = 0;  // most bytes of scales of one row in a tile
};

struct TileFusion {
  static constexpr uint32_t kNoMemory = std::numeric_limits<uint32_t>::max();

  uint64_t rows = 1;
  uint64_t row = 0;
  bool has_rows = false;       // some op depends on where rows begin and end
  bool keeps_rows = false;     // some op reduces rows, or is done once a row
  uint64_t tile_rows = 1;      // whole rows in a tile
  uint64_t tile_elements = 0;  // at most; if fewer than `row`, a tile is a part of a row
  size_t element_bytes = 1;    // most bytes of an element in a register
  bool shares_bytes = false;   // two tiles may have elements in one byte: one thread must do both
  bool alone = false;          // one thread must do all tiles

  // Set: all elements are reduced, in the order that `columns` says; other ops on all of them are
  // elementwise, and stores are of results.
  std::optional<Columns> columns;
  // Set: some load goes across memory, and a tile is a square. All loads and stores have one view,
  // of the dimensions of the squares.
  std::optional<Squares> squares;

  uint64_t launch_elements =
      std::numeric_limits<uint64_t>::max();  // done by a thread before it asks

  std::vector<TileOp> once;  // done before the first tile, as if of one tile
  std::vector<TileOp> ops;
  std::vector<uint32_t> memory;  // by register: index of its memory in scratch; kNoMemory: a link
  uint32_t memories = 0;

  bool IsEmpty() const { return rows == 0 || (row == 0 && !keeps_rows); }
  // Scratch for up to `parts` parts.
  uint64_t ScratchBytes(size_t parts) const { return SharedBytes() + parts * PartBytes(); }
  // Runs in up to `parts` parts, with ScratchBytes(parts); the bits do not depend on how many. Half
  // done if the run stops.
  void Run(const RunMemory& run, std::byte* scratch, size_t parts, Workers* workers) const;

 private:
  uint64_t RegisterBytes() const;
  uint64_t PartBytes() const;
  uint64_t SharedBytes() const;  // of all parts: what chunks of columns come to
  // How many units parts can be made of. A unit is some whole rows, one row, a tile of one row,
  // `width` columns, or a square.
  uint64_t Units(uint64_t width) const;
  void RunUnits(const RunMemory& run, std::byte* scratch, uint64_t width, uint64_t begin,
                uint64_t end) const;
  // Columns too few for so many parts: these share the chunks.
  void RunChunks(const RunMemory& run, std::byte* scratch, size_t parts, Workers& workers) const;
};

}  // namespace ferry::compute
