// SPDX-License-Identifier: Apache-2.0
// Decides which items of a block are one step. Each item begins as a fusion of its own. Two fusions
// are joined only where this is certain to change nothing. No step between the two waits for one of
// them. Each value that passes between them is made and needed at the same point of the same loop.
// And nothing is read from memory that an earlier element has written. Single-threaded; must not
// outlive the graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compute/plan/graph.h"
#include "compute/plan/waits.h"

namespace ferry::compute {

inline constexpr uint32_t kMaxKernelOps = 128;

// Where in the loop of a kernel a value is made or needed.
enum class Level : uint8_t {
  kMemory,  // not in the loop: before it
  kFull,    // for each element
  kRow,     // once for each row
  kBlock,   // once for each block of a row (scales)
};

struct Fusion {
  std::vector<ItemId> items;     // sorted, which is an order in which they can run
  uint64_t elements = 0;         // of the loop
  std::optional<uint64_t> rows;  // the rows that the elements are in; not set: rows do not matter
  ItemId product = kNoItem;
  bool opaque = false;
  // A reduction over other dimensions than the last, which is opaque, what is done with each
  // result, and the elementwise ops that make what is reduced: the loop is that of the results.
  bool reduces = false;
  bool simple = true;  // has only elementwise ops and writes
  uint32_t ops = 0;
  std::vector<uint32_t> after;  // indices in fusions() of those that must be over before

  bool Has(ItemId item) const { return std::binary_search(items.begin(), items.end(), item); }
};

class Partition {
 public:
  Partition(const Graph& graph, BlockId block);

  // The fusions that are steps, or may be, in the order in which they run.
  const std::vector<Fusion>& fusions() const { return fusions_; }
  // The point in its fusion's loop at which an item of this block needs operand `index`.
  Level OperandLevel(ItemId item, size_t index) const;
  Level ResultLevel(ValueId value) const;
  bool AreTogether(ItemId a, ItemId b) const;
  // Whether the item is repeated in each fusion of this block that needs it.
  bool IsDuplicated(ItemId item) const { return duplicated_[Place(item)]; }

 private:
  struct Touch {
    const Item* item = nullptr;  // an input, or an item that writes
    int64_t slot = -1;
    Level level = Level::kMemory;
  };

  size_t Place(ItemId item) const;
  Fusion& FusionOf(ItemId item) { return all_[fusion_of_[Place(item)]]; }
  uint32_t IndexOf(ItemId item) const { return fusion_of_[Place(item)]; }
  Level OwnLevel(ItemId item) const { return in_rows_[Place(item)] ? Level::kRow : Level::kFull; }

  Fusion Alone(ItemId item) const;
  void JoinProducers();
  void JoinSiblings();
  void AbsorbReduced();
  void AbsorbFactors();
  // Joins the elementwise ops that make operand `value` of an item to that item, if it alone uses
  // what they make. `fit`: whether they may be made there.
  void Absorb(ItemId user, ValueId value, absl::FunctionRef<bool(const Fusion&)> fit);
  // Whether the kernel of `reduction` should do the ops of a fusion, which make what it reduces:
  // they can be done in any order of the elements, the tensors that they read lie in the order of
  // their dimensions, and they keep to the bounds of rows.h.
  bool FitColumns(const Fusion& fusion, const Node& reduction) const;
  void DuplicateCheap();
  void DuplicateUnswizzled();
  void Order();
  void TryJoin(uint32_t a, uint32_t b);
  bool HaveOneLoop(const Fusion& a, const Fusion& b);
  bool Fit(const Fusion& a, const Fusion& b) const;
  bool IsFedBy(const Fusion& sink, const Fusion& fusion) const;
  // Whether no element reads what another element has written. `strictly`: `b` writes nothing that
  // `a` reads.
  bool TouchApart(const Fusion& a, const Fusion& b, bool strictly) const;
  void Touches(const Fusion& fusion, const Fusion& other, std::vector<Touch>& reads,
               std::vector<Touch>& writes) const;
  bool Conflict(const Touch& read, const Touch& write, bool strictly) const;
  bool AreOrdered(const Fusion& a, const Fusion& b) const;
  bool IsBetween(uint32_t a, uint32_t b) const;
  bool IsCheap(const Item& item) const;
  // Whether what it reads, by operands, is the same whenever it is read.
  bool ReadsTheSame(const Item& item) const;
  void Join(uint32_t into, uint32_t from);
  void Flip(const Fusion& fusion, bool rows);

  const Graph& graph_;
  const Block& block_;
  std::vector<size_t> places_;  // by item, counted from the block's first
  // By place of their first items; a fusion that was joined to another is empty.
  std::vector<Fusion> all_;
  std::vector<uint32_t> fusion_of_;  // by place
  std::vector<bool> in_rows_;        // by place: an elementwise op that is done once a row
  std::vector<bool> duplicated_;
  std::vector<bool> absorbed_;  // by place: it has become a part of a product or a reduction
  std::vector<std::vector<uint32_t>> needs_;  // by place: places of items
  std::vector<std::vector<uint32_t>> users_;
  std::optional<Waits> waits_;  // set once the two above are known
  std::vector<Fusion> fusions_;
};

}  // namespace ferry::compute
