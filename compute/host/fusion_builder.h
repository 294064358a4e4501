// SPDX-License-Identifier: Apache-2.0
// Makes a TileFusion from a program that is one kernel of a plan, or from a part of such a program.
// Each value gets a register of its own; registers that do not live at the same time share memory.
// Values that only stand for elements of memory (moves) are read where they are needed.
// Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compute/host/tile_fusion.h"
#include "compute/program/program.h"

namespace ferry::compute {

class FusionBuilder {
 public:
  // `places`: where the program's buffers are. Values of constants are appended to `constants`.
  FusionBuilder(const Program& program, absl::Span<const Location> places,
                std::vector<std::byte>& constants)
      : program_(program), places_(places), constants_(constants) {}

  TileFusion Build();

 private:
  struct Value {
    enum class Kind : uint8_t { kMemory, kPlaces, kOnce, kLoop };
    Kind kind = Kind::kMemory;
    TileLevel level = TileLevel::kOnce;  // kLoop
    uint32_t made = 0;                   // kOnce and kLoop: the register that has it
    Location where;                      // kMemory
    Views views;                         // kMemory and kPlaces
    BlockFormat format;                  // scales only
  };
  // Bytes that the kernel writes.
  struct Range {
    Location::Kind kind = Location::Kind::kScratch;
    uint32_t buffer = 0;
    uint64_t begin = 0;
    uint64_t end = 0;

    bool Overlaps(const Range& other) const {
      return kind == other.kind && buffer == other.buffer && begin < other.end && other.begin < end;
    }
  };

  uint64_t Elements(ValueId value) const { return *ElementsOf(program_.types[value]); }
  DType TypeOf(ValueId value) const { return program_.types[value].dtype; }
  Range RangeOf(const Node& node) const;

  void FindLoop();
  void FindWrites();
  void AddNode(const Node& node);
  void AddConstant(const Node& node);
  void AddMove(const Node& node);
  void AddElementwise(const Node& node);
  void AddRowReduction(const Node& node);
  // fusion_layout.cc: chooses the order of the elements that `node` reduces, which are seen by
  // `views`. `alone`: no other op of the kernel depends on the order.
  void OrderElements(const Node& node, const Views& views, bool alone);
  // If ops of the kernel make what a reduction over other dimensions than the last reduces: chooses
  // its order before those ops load anything.
  void FindOrder();
  bool ReducesAlone(const Node& node) const;
  void AddBlocks(const Node& node);
  void AddSink(const Node& node);
  void FindRowEnds();
  void ChooseSquares();
  // `ops` by views of the squares' dimensions; false if one cannot be.
  bool SeeSquares(std::vector<TileOp>& ops);
  void ChooseTile();
  void ShareMemory();

  // A register with the operand at a level; loads it from memory if needed.
  uint32_t In(ValueId value, TileLevel level);
  uint32_t NewRegister();
  // `op` makes `value`, a result of the loop, at a level.
  void Result(TileOp op, ValueId value, TileLevel level);
  void MayBeIn(size_t bytes) {
    fusion_.element_bytes = fusion_.element_bytes < bytes ? bytes : fusion_.element_bytes;
  }

  static constexpr uint64_t kMaxTile = 8192;  // elements; a tile has whole blocks up to this

  const Program& program_;
  const absl::Span<const Location> places_;
  std::vector<std::byte>& constants_;
  TileFusion fusion_;
  std::vector<Value> values_;
  uint64_t elements_ = 0;
  // Tensors whose dimensions are `ordered_` are read in this order of them; empty: as they are.
  std::vector<size_t> order_;
  std::vector<int64_t> ordered_;
  std::vector<Range> writes_;  // what each sink writes
  std::map<std::pair<ValueId, TileLevel>, uint32_t> loaded_;
  std::vector<TileOp> loads_, stores_;
  std::vector<OpIndex> definitions_;
  std::vector<bool> links_;  // by register: it is a part of memory (kLink)
  std::vector<bool> read_;   // by register: a load, or a link to memory that is read
  uint64_t blocks_ = 1;      // parts of rows are a multiple of this
};

}  // namespace ferry::compute
