// SPDX-License-Identifier: Apache-2.0
// Runs programs and plans by symbols: a value is a hash of how it was made, memory is a list of who
// wrote what, and trips of a repeat are run one by one. A program and its plan must have the same
// effects. Shares no code with the planner. Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "compute/plan/plan.h"
#include "compute/program/program.h"

namespace ferry::compute::testing {

class SymbolicRun {
 public:
  // Runs it. Returns its effects, sorted.
  std::vector<std::string> Run(const Program& program);
  std::vector<std::string> Run(const Plan& plan);
  // Wrong uses of the scratch: values that were read and were not there (any more), or were
  // overwritten while they were being sent.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  using Symbol = uint64_t;
  // The place of a part in a slot: offset in bits, strides, type.
  using PartKey = std::tuple<int64_t, std::vector<int64_t>, std::string>;
  struct Part {
    Symbol symbol = 0;
    uint64_t elements = 0;
  };
  using Parts = std::map<PartKey, Part>;
  struct Write {
    uint64_t begin = 0;
    uint64_t end = 0;
    Symbol symbol = 0;
  };

  void RunBlock(const Program& program, size_t begin, size_t end, std::vector<Symbol>& values);
  void RunSteps(const std::vector<Step>& steps);
  Symbol Made(const Program& program, const Node& node, uint32_t result,
              const std::vector<Symbol>& values);
  Symbol Joined(const Parts& parts, const TensorType& whole);
  Symbol Concatenated(const Program& program, const Node& node, const std::vector<Symbol>& values);
  Symbol Read(const Program& program, const Node& node);
  void WriteTo(const Program& program, const Node& node, Symbol value);
  // The binding of a plan's buffer, by the names of the program that is planned.
  Binding Bound(uint32_t buffer) const;
  std::string Earlier(uint32_t buffer, uint64_t begin, uint64_t end) const;
  void Claim(uint32_t slot);

  const Plan* plan_ = nullptr;
  const Step* step_ = nullptr;
  std::vector<std::string> effects_;
  std::vector<std::string> problems_;
  std::map<uint32_t, std::vector<Write>> writes_;  // by buffer
  std::map<uint32_t, Parts> slots_;
  std::vector<uint32_t> sent_;
};

}  // namespace ferry::compute::testing
