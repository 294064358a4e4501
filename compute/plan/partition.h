// SPDX-License-Identifier: Apache-2.0
// Which items of a block are one step. Each begins as a group of its own; groups are joined where
// that is sure to change nothing: no step in between that one of them waits for, each value that
// passes between them made and needed at the same place of the same loop, nothing read from
// memory that an element before has written. Single-threaded; dies before the graph.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compute/plan/graph.h"
#include "compute/plan/waits.h"

namespace ferry::compute {

inline constexpr uint32_t kMaxKernelOps = 128;

// Where in the loop of a kernel a value is made or needed.
enum class Level : uint8_t {
  kMemory,  // nowhere: before it
  kFull,    // of all elements
  kRow,     // once a row
  kBlock,   // once a block of a row (scales)
};

struct Group {
  std::vector<ItemId> items;     // in order
  uint64_t elements = 0;         // of the loop
  std::optional<uint64_t> rows;  // that they are in; nothing: none that matter
  ItemId product = kNoItem;
  bool opaque = false;
  bool simple = true;  // elementwise ops and writes only
  uint32_t ops = 0;
  std::vector<uint32_t> after;  // places of groups that make steps, in the order of all
};

class Partition {
 public:
  Partition(const Graph& graph, BlockId block);

  // Groups that are steps, or may be, in the order in which they run.
  const std::vector<Group>& groups() const { return groups_; }
  // Where in its group's loop an item of this block needs operand `index`.
  Level OperandLevel(ItemId item, size_t index) const;
  Level ResultLevel(ValueId value) const;
  bool AreTogether(ItemId a, ItemId b) const;
  // Is it done anew in each group of this block that needs it?
  bool IsDuplicated(ItemId item) const { return duplicated_[Place(item)]; }

 private:
  struct Touch {
    const Item* item = nullptr;  // an input, or what writes
    int64_t slot = -1;
    Level level = Level::kMemory;
  };

  size_t Place(ItemId item) const;
  Group& GroupOf(ItemId item) { return all_[group_of_[Place(item)]]; }
  uint32_t IndexOf(ItemId item) const { return group_of_[Place(item)]; }
  Level OwnLevel(ItemId item) const { return in_rows_[Place(item)] ? Level::kRow : Level::kFull; }

  Group Alone(ItemId item) const;
  void JoinProducers();
  void JoinSiblings();
  void AbsorbFactors();
  void DuplicateCheap();
  void Order();
  void TryJoin(uint32_t a, uint32_t b);
  bool HaveOneLoop(const Group& a, const Group& b);
  bool Fit(const Group& a, const Group& b) const;
  bool IsFedBy(const Group& sink, const Group& group) const;
  // Does no element read what another has written? Strictly: `b` writes nothing that `a` reads.
  bool TouchApart(const Group& a, const Group& b, bool strictly) const;
  void Touches(const Group& group, const Group& other, std::vector<Touch>& reads,
               std::vector<Touch>& writes) const;
  bool Conflict(const Touch& read, const Touch& write, bool strictly) const;
  bool AreOrdered(const Group& a, const Group& b) const;
  bool IsBetween(uint32_t a, uint32_t b) const;
  bool IsCheap(const Item& item) const;
  void Join(uint32_t into, uint32_t from);
  void Flip(const Group& group, bool rows);

  const Graph& graph_;
  const Block& block_;
  std::vector<size_t> places_;      // by item, from the block's first
  std::vector<Group> all_;          // by place of its first item; joined ones are empty
  std::vector<uint32_t> group_of_;  // by place
  std::vector<bool> in_rows_;       // by place: is an elementwise op done once a row?
  std::vector<bool> duplicated_;
  std::vector<std::vector<uint32_t>> needs_;  // by place, as places
  std::vector<std::vector<uint32_t>> users_;
  std::optional<Waits> waits_;  // from when those are known
  std::vector<Group> groups_;
};

}  // namespace ferry::compute
