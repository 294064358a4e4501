// SPDX-License-Identifier: Apache-2.0
// How passes make a program out of another: op by op, in its order, with everything renumbered.
// Single-threaded; dies before the program that is copied.
// Invariant: `values` and `ops` say for all that was passed so far what it has become.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compute/program/program.h"

namespace ferry::compute {

// Which results of an op stay, and so which operands of a barrier, or what a repeat carries. Empty:
// all.
using Kept = std::vector<bool>;

class Copier {
 public:
  static constexpr uint32_t kGone = std::numeric_limits<uint32_t>::max();

  explicit Copier(const Program& from);

  // Calls `with` for the ops in order. It calls Put for the op, or sets what its results have
  // become. The body of a repeat that was not put is passed over. Calls `closed` for each repeat
  // whose body has ended: what is appended there comes right after it.
  Program Run(
      absl::FunctionRef<void(OpIndex)> with,
      absl::FunctionRef<void(OpIndex)> closed = [](OpIndex) {});

  // The op with its operands, and what it is after, as they are called now.
  Node Renumbered(OpIndex index, const Kept& kept = {}) const;
  // Appends `node` in the place of op `index`, whose results it has, or those that are kept.
  OpIndex Put(OpIndex index, Node node, const Kept& kept = {});

  // What there is so far.
  Program& to() { return to_; }

  std::vector<ValueId> values;  // by value of the program that is copied; kGone: it has none
  std::vector<OpIndex> ops;     // by op of it; kGone: it was not put

 private:
  struct Open {
    OpIndex repeat = 0;  // of the program that is copied
    size_t end = 0;
    Kept kept;
  };

  void CloseUntil(size_t index, absl::FunctionRef<void(OpIndex)> closed);

  const Program& from_;
  Program to_;
  std::vector<Open> open_;
};

// By op: is it to stay though it could be said in another way? So it is if it takes part in an
// order by name, or if nobody uses its results: RemoveDeadCode knows what orders go with it.
std::vector<bool> FixedOps(const Program& program);

}  // namespace ferry::compute
