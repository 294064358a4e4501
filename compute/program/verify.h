// SPDX-License-Identifier: Apache-2.0
// Checks whether a program makes sense: all that can be known before memory is bound and before
// anything is allocated. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/reason.h"
#include "compute/program/limits.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct Problem {
  int64_t op = -1;  // index; -1: about the program as a whole
  std::string label;
  std::string rule;
  std::string text;  // names both types, or both ops
  Reason reason = Reason::kFieldInvalid;
};

// "op 3 add 'scale': same type: operands 0 and 1 are f32[4] and f32[5]"
std::string ToString(const Program& program, const Problem& problem);
// A label as problems show it: escaped, and cut to the length that labels may have.
std::string ShownLabel(absl::string_view label);
// "3 problems"; says that there may be more if there are kMaxProblems.
std::string ProblemsText(size_t problems);

// The most that one run may cost; the daemon may allow less.
struct Limits {
  uint64_t flops = kMaxFlops;
  uint64_t traffic = kMaxTraffic;
  uint64_t steps = kMaxSteps;
};

// Problems with numbers, names and counts, which everything that looks into a program relies on.
// Skips `unclear` ops.
std::vector<Problem> CheckStructure(const Program& program, const std::vector<bool>& unclear = {});

// All problems, at most kMaxProblems, sorted by op. Empty: the program is good.
std::vector<Problem> Verify(const Program& program, const Limits& limits = {});
// The same for a program of which some ops, by index, are known to be bad or to use something bad:
// these are skipped. Values, bodies and `after` of the other ops must be in order.
std::vector<Problem> VerifyRest(const Program& program, std::vector<bool> unclear,
                                const Limits& limits = {});

// OK if there are no problems; else INVALID_ARGUMENT with the reason that all problems share, or
// with FIELD_INVALID if they differ.
absl::Status ToStatus(const Program& program, const std::vector<Problem>& problems);

}  // namespace ferry::compute
