// SPDX-License-Identifier: Apache-2.0
// What the values of a kernel are, and how its threads divide the work: what code is written for
// (kernel_writer.h). Plain data, and pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "compute/cuda/kernel_code.h"
#include "compute/cuda/transpose_tile.h"
#include "compute/numerics/reduction_order.h"
#include "compute/plan/kernel_loop.h"
#include "compute/plan/view.h"
#include "compute/program/program.h"

namespace ferry::compute {

// Whether the op reads other elements of its operands than those at the position of its result.
bool IsOpaque(const Program& program, const Node& node);

struct KernelShape {
  enum class Kind : uint8_t {
    kMemory,
    kPlaces,  // of an iota: an element is its place
    kTable,   // a constant with elements of its own
    kOnce,    // the same everywhere: computed before the loop
    kLoop,    // computed in the loop
  };
  enum class Level : uint8_t { kOnce, kFull, kRow, kBlock };
  struct Value {
    Kind kind = Kind::kMemory;
    Level level = Level::kFull;  // kLoop: where its elements change
    uint32_t phase = 0;          // kLoop: number of loops over its row after which it is known
    OpIndex node = 0;            // kLoop and kOnce: the node that makes it
    ValueId source = 0;          // itself, or a value that differs from it only in shape
    uint32_t buffer = 0;         // kMemory
    int64_t offset = 0;          // kMemory; in bytes
    Views views;                 // kMemory, kPlaces and kTable
  };
  // What is written to memory.
  struct Sink {
    const Node* node = nullptr;
    Level level = Level::kFull;
    uint32_t phase = 0;
  };

  const Value& Of(ValueId value) const { return values[values[value].source]; }
  // The last loop over a row, by its number; -1: there is none.
  int64_t LastPhase() const;
  // What is known of an address in a buffer, at most 16.
  int AlignmentOf(uint32_t buffer, int64_t offset) const;
  // ... and of the address of a vector of a value in memory; none if it may begin within a byte.
  std::optional<int> AlignmentOf(const Value& value, DType type) const {
    return AlignmentOf(value.buffer, value.offset, value.views[0], type);
  }
  // The same for a view of the memory of a buffer from `offset` on, in bytes.
  std::optional<int> AlignmentOf(uint32_t buffer, int64_t offset, const View& view,
                                 DType type) const;
  // Whether the value is read along `tile`.
  bool IsReadAcross(const Value& value, DType type) const;
  // A view as dimensions that are counted by rows and such that are counted by elements of a row;
  // none if it is not only one view, or its dimensions cannot be divided so.
  std::optional<std::pair<View, View>> SplitRow(const Views& views) const;

  absl::Span<const uint32_t> alignments;  // of the memory of each buffer
  KernelLoop loop;
  std::vector<Value> values;  // by their ids
  std::vector<Sink> sinks;    // in the order of the program
  bool rows = false;          // the template is "rows"
  bool chunks = false;        // template "rows": a warp takes a chunk of a row
  bool held = false;          // template "rows": a block of threads has a row in registers
  // Template "rows": so many neighbouring results a block of threads has (column_tile.h). 0: a warp
  // has a result.
  int columns = 0;
  // Template "flat": a thread takes a square of elements, since some tensor is read across.
  std::optional<TransposeTile> tile;
  int vector = 1;     // elements that follow each other, of a thread
  int unroll = 1;     // vectors of a thread
  bool wide = false;  // places do not fit 32 bits
};

// `alignments` outlive the shape.
KernelShape ShapeOf(const Program& program, absl::Span<const uint32_t> alignments,
                    const CodeOptions& options);

}  // namespace ferry::compute
