// SPDX-License-Identifier: Apache-2.0
// A program in the form from which its plan is made: ops, with the role that each may play in a
// kernel, and the writes that a plan needs besides (values that a repeat carries on, the parts of a
// concatenation). Single-threaded; must not outlive the program. Invariant: the items of a block
// are in an order in which they could run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/plan/plan.h"
#include "compute/plan/view.h"
#include "compute/program/program.h"

namespace ferry::compute {

using ItemId = uint32_t;
using BlockId = uint32_t;
inline constexpr ItemId kNoItem = ~ItemId{0};

inline constexpr size_t kMaxItems = 16384;
inline constexpr uint32_t kMaxInlined = 16;  // ops that are repeated for one operand, at most

enum class Role : uint8_t {
  kInlined,     // repeated wherever it is needed: constants, reads, views of memory, scalars
  kPointwise,   // each element from the operands' elements at its position
  kReduction,   // one element from each row
  kSpread,      // a whole row from one element for each row
  kQuantize,    // a row and its blocks' scales from each row
  kDequantize,  // a row from a row and its blocks' scales
  kOpaque,      // alone in its kernel, but for writes of its results (a reduction: Fusion::reduces)
  kProduct,
  kSink,     // writes its operand into a buffer or a slot
  kAlone,    // a step of its own: copy, delta_apply, send, recv, repeat
  kNothing,  // no step: barrier, keep, what is written in parts
};           // no step: barrier, keep, a value that is written in parts

struct Item {
  Node node;                      // with values of the graph; its `after` and its body are not used
  Role role = Role::kInlined;     // with values of the graph; `after` and `body` are not used
  int64_t origin = -1;            // the program's op; -1: none
  BlockId block = 0;              // the block that it is in
  std::optional<uint32_t> slot;   // sinks that write no buffer: the slot that they write
  std::optional<BlockId> body;    // repeats
  std::optional<uint32_t> count;  // repeats: the slot with the number of the trip
  std::vector<ItemId> before;     // items that are over when it begins
  // Items that are over too, or that do the same elements at the same time.
  std::vector<ItemId> beside;
  uint32_t ops = 1;  // upper bound on its ops in a kernel
};

struct Block {
  ItemId repeat = kNoItem;  // the repeat whose body the block is; kNoItem: the program's block
  std::vector<ItemId> items;
};

struct Graph {
  Program program;  // the program that is planned
  std::vector<TensorType> types;
  std::vector<Item> items;
  std::vector<Block> blocks;  // the first one is the program's
  // By value: the item that makes it; kNoItem: a parameter of a body.
  std::vector<ItemId> definitions;
  std::vector<ValueId> sources;  // by value: itself, or the value that a barrier passed on
  std::vector<int64_t> homes;    // by value: the slot that it is in; -1: none (yet)
  std::vector<Slot> slots;
  std::vector<BlockId> slot_blocks;  // by slot: the block in which it was made
  std::vector<bool> shared_slots;    // by slot: steps other than the one that makes it write it too
  // By value: the reads and parameters that it is made of by inlined ops.
  std::vector<std::vector<ValueId>> roots;
  std::vector<std::vector<ItemId>> users;  // by value: the items that have it as an operand
  std::vector<bool> changing;              // by root: whether it is overwritten at some time

  uint64_t Elements(ValueId value) const { return *ElementsOf(types[value]); }
  // Whether an item of a kernel of `block` makes the value.
  bool IsMadeIn(ValueId value, BlockId block) const;
  // Whether the value is an input, or another one that is put into memory, seen through nothing but
  // moves.
  bool IsSeenMemory(ValueId value) const;
  // Where the elements of a value are in the memory that a kernel reads them from, seen through
  // moves. Those of a value that is not in memory are seen as if it were.
  Views ViewsOf(ValueId value) const;
  // Where, in bytes from the beginning of a dense operand, the result of a `slice` is, if that is
  // rows of dimension 0 that follow each other and begin at whole bytes.
  std::optional<uint64_t> OffsetOfRows(const Node& slice) const;
  // The items of its block that the item has to wait for.
  std::vector<ItemId> NeedsOf(ItemId item) const;
  // By item: whether a send or a receive needs it.
  std::vector<bool> AwaitedByTransfers() const;
  // The node's label; else the op's name, for a read with its buffer.
  std::string LabelOf(const Node& node) const;
  uint32_t AddSlot(TensorType type, std::string label, BlockId block, bool shared);
  // The item of `block` that is `item` or the repeat around it; kNoItem: `item` is not below
  // `block`.
  ItemId Lifted(ItemId item, BlockId block) const;
};

inline bool IsClustered(Role role) {
  return role != Role::kInlined && role != Role::kAlone && role != Role::kNothing;
}

absl::StatusOr<Graph> MakeGraph(const Program& program);

}  // namespace ferry::compute
