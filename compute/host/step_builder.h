// SPDX-License-Identifier: Apache-2.0
// Makes of each step of a plan what HostProgram runs: a group, or an op on whole tensors between
// groups that make its operands and use its result. Single-threaded; used once.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compute/host/host_program.h"

namespace ferry::compute {

class StepBuilder {
 public:
  explicit StepBuilder(HostProgram& made) : made_(made) {}
  void Build();

 private:
  using Work = HostProgram::Work;

  void AddStep(const Step& step, std::vector<Work>& works);
  void AddKernel(const Step& step, std::vector<Work>& works);
  void AddAround(const Step& step, OpIndex center, std::vector<Work>& works);
  // Of an op on whole tensors. `kept`: made once, of constant buffers alone.
  struct Operand {
    Location place;
    bool kept = false;
  };
  // Where an operand is that the step's op `made_by` makes, or is put by a group that is added.
  Operand PlaceOperand(const Step& step, ValueId value, const Node& made_by, bool may_keep,
                       std::vector<Work>& works);
  // Where the result of `node` is made: if all `sinks` of the step store it, where one of them
  // would, which is taken out of them.
  Location PlaceResult(const Step& step, const Node& node, std::vector<const Node*>& sinks);
  // Of a work that has its op and places. `constant`: by operand.
  void MakeProduct(const Program& program, const std::vector<bool>& constant, Work& work);
  // The work that was added, if there is something to do.
  Work* AddGroup(const Program& program, absl::Span<const Location> places,
                 std::vector<Work>& works);
  uint64_t LaunchOf(const Cost& cost, uint64_t elements) const;
  Location PlaceOf(const Binding& binding) const;
  std::vector<Location> PlacesOf(const Step& step) const;  // by binding
  // Whether `node` reads a constant buffer, or what is made of one.
  bool IsConstantInput(const Step& step, const Node& node) const;
  // Whether `part` of the step reads constant buffers, and no others.
  bool IsOfConstants(const Step& step, const Program& part) const;
  // Memory for what is made of constant buffers alone, and which of Kept::ready says that it is.
  uint64_t Keep(Work& work, uint64_t bytes);
  // Memory until the end of the step: of what the plan has for it while there is, else of ours.
  Location Temporary(uint64_t bytes);
  // The same for what is used at once.
  Location Scratch(uint64_t bytes);

  HostProgram& made_;
  std::vector<bool> constant_slots_;
  std::map<uint32_t, uint64_t> kept_slots_;  // of those that are made, where
  uint64_t base_ = 0;                        // of the arena that is no slot's
  // Of the step at hand.
  uint64_t planned_ = 0;
  uint64_t planned_end_ = 0;
  uint64_t taken_ = 0;
  uint64_t most_ = 0;
};

}  // namespace ferry::compute
