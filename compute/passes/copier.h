// SPDX-License-Identifier: Apache-2.0
// Copies a program op by op, in its order, with everything renumbered; passes change it on the way.
// Single-threaded; must not outlive the program that is copied. Invariant: for all that was passed
// so far, `values` and `ops` say what it has become.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compute/program/program.h"

namespace ferry::compute {

// Which results of an op stay, by result. For a barrier these say which operands stay; for a
// repeat, which carried values. Empty: all stay.
using Kept = std::vector<bool>;

class Copier {
 public:
  static constexpr uint32_t kGone = std::numeric_limits<uint32_t>::max();

  explicit Copier(const Program& from);

  // Calls `with` for each op in order. `with` calls Put() for the op, or sets in `values` what its
  // results have become. If a repeat was not put, its body is skipped. Calls `closed` for each
  // repeat when its body has ended: what is appended there comes directly after the repeat.
  Program Run(
      absl::FunctionRef<void(OpIndex)> with,
      absl::FunctionRef<void(OpIndex)> closed = [](OpIndex) {});

  // The op with its operands and its `after` by their new numbers.
  Node Renumbered(OpIndex index, const Kept& kept = {}) const;
  // Appends `node` in place of op `index`: its results stand for that op's results, or for those
  // that are kept.
  OpIndex Put(OpIndex index, Node node, const Kept& kept = {});

  // The new program so far.
  Program& to() { return to_; }

  std::vector<ValueId> values;  // by value of the copied program: the new value; kGone: none
  std::vector<OpIndex> ops;     // by op of the copied program: the new op; kGone: it was not put

 private:
  struct Open {
    OpIndex repeat = 0;  // op of the copied program
    size_t end = 0;
    Kept kept;
  };

  void CloseUntil(size_t index, absl::FunctionRef<void(OpIndex)> closed);

  const Program& from_;
  Program to_;
  std::vector<Open> open_;
};

// By op: whether it must stay even if it could be expressed otherwise. So it must if it takes part
// in an explicit order, or if nothing uses its results: RemoveDeadCode decides about those orders.
std::vector<bool> FixedOps(const Program& program);

}  // namespace ferry::compute
