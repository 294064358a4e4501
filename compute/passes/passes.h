// SPDX-License-Identifier: Apache-2.0
// What is done to a program before it is planned. Each pass is a pure function from a program that
// Verify accepts to one that Verify accepts, that does the same, and on which the pass finds
// nothing more to do. All passes keep the order of the remaining ops, as given by values and
// `after`. They neither fold nor merge an op that takes part in an explicit order (it has `after`,
// or is in another op's), or that nothing uses. docs/programs.md says what each pass does. Any
// thread.
#pragma once

#include "compute/program/program.h"

namespace ferry::compute {

// A transfer with `parts` becomes as many, each of rows of dimension 0 that follow each other, with
// '/' and the number of the part behind its key. An op is parted too if row i of its results
// depends on row i of its operands alone, and it makes a value that is only needed in these parts,
// or uses one that is made in parts. What is whole and needed in parts is sliced, what was made in
// parts and is needed whole is concatenated. Part 0 of all ops comes first, then part 1. Best where
// MergeEqualOps, JoinMoves and RemoveDeadCode have been: what is dead needs its operands whole. An
// op stays whole if in parts it would write over what others read. Nothing but the transfers is
// parted if there would be more than kMaxOps.
Program PartTransfers(const Program& program);

// Turns ops whose operands are all constants into constants, where StableHLO leaves nothing open
// and every executor gives these bits: no functions such as tanh, no sums, no NaN. Removes ops that
// change nothing (a reshape to the same shape). The results of a barrier are not constants.
Program FoldConstants(const Program& program);

// A reshape, broadcast_in_dim or transpose of another one becomes one of the value that the other
// one moves, where one op does what both do: a broadcast of a broadcast is one broadcast, a
// transpose of a transpose is one, or nothing. A broadcast or transpose that only adds, removes or
// moves dimensions of 1 becomes a reshape. A dot_general of a transpose becomes one of what is
// transposed, if that is matrices as libraries take them.
Program JoinMoves(const Program& program);

// Of pure ops that are equal except for the label keeps the first, for its body and the bodies
// within it. Does not merge repeats, nor ops that Effect says may not be merged.
Program MergeEqualOps(const Program& program);

// Removes what neither has an effect nor is needed for one: also single results and operands of
// barriers, and values that a repeat carries for nothing. A barrier keeps nothing alive.
Program RemoveDeadCode(const Program& program);

// The most bytes that a repeat carries in place of sums: about a core's second-level cache, so that
// each trip adds to them as fast as it would reduce.
inline constexpr uint64_t kMaxPartialBytes = uint64_t{1} << 20;

// A repeat that adds the result of a `reduce` to a value that it carries instead adds element by
// element, and one reduction follows it. Only for integers, which wrap, and for floating types
// where sums may be reordered (Numerics::allow_reassociation).
Program MoveReductionsOutOfLoops(const Program& program);

// Turns each `empty` into a constant: 0; or with `poison` all ones, so that a read of it is
// noticed, since that is NaN in all floating types that have one, and -1 in integers. For
// executors; not part of Simplify(). Ops keep their numbers.
Program FillEmpty(Program program, bool poison);

// All passes but FillEmpty, in the order above; those that join, merge and remove also before a
// program is parted, and once more if the last one changed anything.
Program Simplify(const Program& program);

}  // namespace ferry::compute
