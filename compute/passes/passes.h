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

// All of them, in the order above.
Program Simplify(const Program& program);

}  // namespace ferry::compute
