// SPDX-License-Identifier: Apache-2.0
// What is done to a program before it is planned. Each pass is a pure function of one that Verify
// accepts, and gives one that Verify accepts, that does the same, and on which the pass has nothing
// left to do. All keep the order of the ops that remain, by values or by `after`. Ops that take
// part in an order by name (have `after`, or are in somebody's), or that nobody uses, are neither
// folded nor merged. docs/programs.md has what each does. Any thread.
#pragma once

#include "compute/program/program.h"

namespace ferry::compute {

// Ops of which all operands are constants become constants, where StableHLO leaves nothing open and
// every executor gives these bits: nothing through functions such as tanh, no sums, no NaN. Ops
// that change nothing (a reshape to the same shape) go. A barrier's results are not constants.
Program FoldConstants(const Program& program);

// Of pure ops that are equal in all but the label only the first stays, for those of its body and
// of bodies in it. Repeats, and what Effect says may not be merged, are not.
Program MergeEqualOps(const Program& program);

// What neither has an effect nor is needed by what has goes: also results and operands of barriers
// one by one, and what a repeat carries round for nobody. A barrier keeps nothing alive.
Program RemoveDeadCode(const Program& program);

// The most that a repeat carries instead of sums: about what a core's second cache holds, so that
// each trip adds to it as fast as it would reduce.
inline constexpr uint64_t kMaxPartialBytes = uint64_t{1} << 20;

// A repeat that adds what a `reduce` sums up to a value it carries round adds it up element by
// element instead, and what follows it reduces once: of integers, which wrap, and of floating types
// where sums may be reordered (Numerics::allow_reassociation).
Program MoveReductionsOutOfLoops(const Program& program);

// What `empty` makes, as a constant: 0, or, so that whoever reads it notices, all ones, which are
// NaN in all floating types that have one and -1 in integers. For executors: no part of Simplify.
// Ops keep their numbers.
Program FillEmpty(Program program, bool poison);

// All but FillEmpty, in the order above, and once more what merges and removes if the last did
// something.
Program Simplify(const Program& program);

}  // namespace ferry::compute
