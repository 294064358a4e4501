// SPDX-License-Identifier: Apache-2.0
// A program as what its plan is made of: ops with the part each may play in a kernel, and besides
// them the writes that a plan needs (what a repeat carries on, the parts of what is concatenated).
// Single-threaded; dies before the program.
// Invariant: items of a block are in an order in which they could run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/plan/plan.h"
#include "compute/program/program.h"

namespace ferry::compute {

using ItemId = uint32_t;
using BlockId = uint32_t;
inline constexpr ItemId kNoItem = ~ItemId{0};

inline constexpr size_t kMaxItems = 16384;
inline constexpr uint32_t kMaxInlined = 16;  // ops done anew for one operand

enum class Role : uint8_t {
  kInlined,     // done where it is needed: constants, reads, views of memory, scalars
  kPointwise,   // each element of those at its place
  kReduction,   // of each row one
  kSpread,      // of one of each row the row
  kQuantize,    // of each row a row, and one of each block
  kDequantize,  // the other way
  kOpaque,      // alone but for writes of what it makes
  kProduct,
  kSink,     // writes its operand into a buffer or a slot
  kAlone,    // a step of its own: copy, send, recv, repeat
  kNothing,  // no step: barrier, keep, what is written in parts
};

struct Item {
  Node node;  // with values of the graph; its `after` and its body are not used
  Role role = Role::kInlined;
  int64_t origin = -1;            // op of the program
  BlockId block = 0;              // that it is in
  std::optional<uint32_t> slot;   // of a sink: what it writes, if no buffer
  std::optional<BlockId> body;    // of a repeat
  std::optional<uint32_t> count;  // of a repeat: a slot
  std::vector<ItemId> before;     // are over when it begins
  std::vector<ItemId> beside;     // are over too, or do the same elements at the same time
  uint32_t ops = 1;               // that it is in a kernel, at most
};

struct Block {
  ItemId repeat = kNoItem;  // whose body it is
  std::vector<ItemId> items;
};

struct Graph {
  Program program;  // that is planned
  std::vector<TensorType> types;
  std::vector<Item> items;
  std::vector<Block> blocks;        // the first is the program's
  std::vector<ItemId> definitions;  // by value; kNoItem: what a body is given
  std::vector<ValueId> sources;     // by value: itself, or what a barrier handed through
  std::vector<int64_t> homes;       // by value: the slot it is in; -1: in none (yet)
  std::vector<Slot> slots;
  std::vector<BlockId> slot_blocks;         // by slot, where it was made
  std::vector<bool> shared_slots;           // by slot: written by more than the step that makes it
  std::vector<std::vector<ValueId>> roots;  // by value: reads and parameters that it is of, inlined
  std::vector<std::vector<ItemId>> users;   // by value: items that have it as operand
  std::vector<bool> changing;               // by root: it is written over some time

  uint64_t Elements(ValueId value) const { return *ElementsOf(types[value]); }
  // Does an item of a kernel of `block` make it?
  bool IsMadeIn(ValueId value, BlockId block) const;
  // Items of its block that it has to wait for.
  std::vector<ItemId> NeedsOf(ItemId item) const;
  // By item: does a send or a receive need it?
  std::vector<bool> AwaitedByTransfers() const;
  // Or the op's name, of a read with its buffer.
  std::string LabelOf(const Node& node) const;
  uint32_t AddSlot(TensorType type, std::string label, BlockId block, bool shared);
  // What `item`, or the repeat around it, is in `block`; kNoItem: it is not below it.
  ItemId Lifted(ItemId item, BlockId block) const;
};

inline bool IsClustered(Role role) {
  return role != Role::kInlined && role != Role::kAlone && role != Role::kNothing;
}

absl::StatusOr<Graph> MakeGraph(const Program& program);

}  // namespace ferry::compute
