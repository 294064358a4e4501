// SPDX-License-Identifier: Apache-2.0
// Makes the steps of a HostProgram: which ops are run together a tile at a time, which values are
// in memory and where, which in registers. Single-threaded; used once.
//
// A group of ops is open while ops follow each other that can be of it: those over as many
// elements. What stands for the elements of another value (a reshape) is that value, its root; an
// input is the buffer itself where nobody writes to it. One element for all is no tensor anywhere.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "compute/host/host_program.h"

namespace ferry::compute {

class HostPlanner {
 public:
  explicit HostPlanner(HostProgram& made);
  void Plan();

 private:
  using Step = HostProgram::Step;
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  struct Value {
    TensorType type;
    uint32_t root = 0;
    std::optional<uint64_t> splat;  // what all elements are
    Location place;                 // of roots
    uint32_t group = kNone;         // that makes it
    bool in_registers = false;      // there, and may be used in the same group
    bool in_memory = false;         // somebody needs it there
    uint32_t first = 0;             // steps, of roots that are in the arena
    uint32_t last = 0;
  };

  // An op of a group before registers are known; or, of no op, `result` is filled with `code`.
  struct Member {
    uint32_t op = kNone;
    uint32_t result = kNone;
    uint64_t code = 0;
  };
  // What a group does to a buffer; dense: in the order of its elements.
  struct Touch {
    BufferRange range;
    DType type = DType::kF32;
    bool dense = false;
  };
  struct Group {
    uint64_t elements = 0;
    uint64_t row = 0;
    size_t step = 0;
    std::vector<Member> members;
    std::vector<Touch> touches;
  };
  // A step's values before places are known.
  struct StepValues {
    std::vector<uint32_t> in;
    std::vector<uint32_t> out;
    std::vector<uint32_t> between;
    uint64_t scratch = 0;
  };

  // Steps and groups, in the order of the program.
  void AddBlock(size_t begin, size_t end);
  void AddOp(OpIndex index);
  void AddWhole(OpIndex index);
  void AddRepeat(OpIndex index);
  void AddMember(OpIndex index);
  bool AddConstant(const Node& node);
  // The op makes no elements: its results stand for those of others. False if it does.
  bool AddAlias(const Node& node);
  size_t AddStep(Step::Kind kind, size_t index);
  uint32_t OpenGroup(uint64_t elements, uint64_t row);
  void CloseGroup() { open_ = kNone; }
  bool Fits(const Node& node, uint64_t elements, uint64_t row, const Touch* touch) const;
  bool IsOverwritten(const BufferRange& range) const;
  uint32_t RootOf(ValueId value) const { return values_[value].root; }
  // The root of a value that is to be in memory before the step that is added next.
  uint32_t InMemory(ValueId value);
  uint32_t NewValue(TensorType type, size_t step);

  void PlanArena();

  HostProgram& made_;
  const Program& program_;
  std::vector<Value> values_;  // those of the program, and further ones
  std::vector<Group> groups_;
  std::vector<StepValues> step_values_;
  std::vector<std::pair<size_t, size_t>> repeats_;  // the steps of each, and of its end
  uint32_t open_ = kNone;

  friend class GroupBuilder;
};

}  // namespace ferry::compute
