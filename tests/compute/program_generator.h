// SPDX-License-Identifier: Apache-2.0
// Makes random programs that Verify accepts, from a seed: every op, every type it takes, dimensions
// of 0 and 1, values used often and never, repeats, ordered effects. Executors are compared over
// them. A seed gives the same program with every compiler: no call draws two random numbers among
// its arguments, whose order of evaluation is the compiler's. Single-threaded.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "compute/program/program.h"

namespace ferry::compute::testing {

struct GeneratorOptions {
  int ops = 40;             // about how many ops
  int64_t largest_dim = 5;  // largest dimension of values that are made anew
  bool transfers = true;    // with send and recv
};

class ProgramGenerator {
 public:
  explicit ProgramGenerator(uint64_t seed, GeneratorOptions options = {});
  Program Make();

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  DType Pick(DTypeSet set);
  std::vector<int64_t> Dims(size_t least_rank, size_t most_rank);
  std::vector<int64_t> Permutation(size_t rank);
  TensorType Type(DTypeSet set, size_t least_rank = 0, size_t most_rank = 3);

  // A value of this type that is in scope, or a new one.
  ValueId Value(const TensorType& type);
  // A value of one of these types, whose rank is within the bounds.
  ValueId Any(DTypeSet set, size_t least_rank = 0, size_t most_rank = 4);
  ValueId New(const TensorType& type);

  ValueId Add(Op op, std::vector<ValueId> operands, Attributes attributes = {},
              std::vector<TensorType> types = {});
  void AddRandom(Op op);
  void AddShape(Op op);
  void AddBlocks(Op op);
  void AddDot();
  void AddEffect(Op op);
  void AddDelta(Op op);
  void AddRepeat();
  OpIndex AddNode(Node node, std::vector<TensorType> types);
  uint32_t NewBuffer(Access access, uint64_t bytes);

  std::mt19937_64 random_;
  const GeneratorOptions options_;
  Program program_;
  std::vector<ValueId> scope_;
  int nesting_ = 0;
  int keys_ = 0;
};

}  // namespace ferry::compute::testing
