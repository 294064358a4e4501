// SPDX-License-Identifier: Apache-2.0
// Makes steps from fusions: the program of each step, what its buffers are bound to, and which
// values need a slot. Single-threaded.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compute/plan/graph.h"
#include "compute/plan/partition.h"

namespace ferry::compute {

// By slot that only one step writes: the slots that this step reads element by element while it
// writes.
using InPlace = std::vector<std::vector<uint32_t>>;

class Assembler {
 public:
  explicit Assembler(Graph& graph);

  // All steps of the program, not numbered yet. Makes the slots that they need.
  std::vector<Step> Run() { return Steps(0); }
  const InPlace& in_place() const { return in_place_; }

 private:
  class Kernel;

  std::vector<Step> Steps(BlockId block);
  // False if the fusion writes nothing: no step is made.
  bool Make(const Partition& partition, const Fusion& fusion, Step& step);
  uint32_t SlotOf(ValueId value);

  Graph& graph_;
  std::vector<std::unique_ptr<Partition>> partitions_;
  std::vector<bool> wanted_;  // by value: a step reads it from its slot
  InPlace in_place_;          // by slot
};

}  // namespace ferry::compute
