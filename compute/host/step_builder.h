// SPDX-License-Identifier: Apache-2.0
// Turns each step of a plan into what HostProgram runs: a fusion, or an op on whole tensors with
// fusions before and after it that make its operands and use its result. Single-threaded; used
// once.
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
  // Where an operand is that the step's op `made_by` makes, or is put by works that are added.
  Operand PlaceOperand(const Step& step, ValueId value, const Node& made_by, bool may_keep,
                       std::vector<Work>& works);
  // The same, made by a work that is added; `keeps`: once, and then kept.
  Operand PlaceWhole(const Step& step, ValueId value, const Node& made_by, bool keeps,
                     std::vector<Work>& works);
  // Where a result of an op is made: if all `sinks` store it, where one of them would, which is
  // taken out of them.
  Location PlaceResult(const Step& step, ValueId value, std::vector<const Node*>& sinks);
  // Of a work that has its op and places. `constant`: by operand.
  void MakeProduct(const Program& program, const std::vector<bool>& constant, Work& work);
  // Adds a fusion. Returns its work; null if there is nothing to do.
  Work* AddFusion(const Program& program, absl::Span<const Location> places,
                  std::vector<Work>& works);
  uint64_t LaunchOf(const Cost& cost, uint64_t elements) const;
  Location PlaceOf(const Binding& binding) const;
  std::vector<Location> PlacesOf(const Step& step) const;  // by binding
  // Whether `node` reads a constant buffer, or a value that is made from constant buffers alone.
  bool IsConstantInput(const Step& step, const Node& node) const;
  // Whether `part` of the step reads constant buffers, and no other ones.
  bool IsOfConstants(const Step& step, const Program& part) const;
  // Memory in FromConstants for `bytes` that are made from constant buffers alone; gives the work
  // its place in FromConstants::ready.
  uint64_t Keep(Work& work, uint64_t bytes);
  // Memory that lasts until the end of the step: from the plan's memory for the step while that
  // suffices, else from memory of our own behind it.
  Location Temporary(uint64_t bytes);
  // The same, for memory that is used at once.
  Location Scratch(uint64_t bytes);

  HostProgram& made_;
  std::vector<bool> constant_slots_;
  std::map<uint32_t, uint64_t>
      slots_from_constants_;  // by slot that is kept: where in FromConstants
  uint64_t base_ = 0;         // where the scratch begins that is in no slot
  // Of the present step.
  uint64_t planned_ = 0;
  uint64_t planned_end_ = 0;
  uint64_t taken_ = 0;
  uint64_t most_ = 0;
};

}  // namespace ferry::compute
