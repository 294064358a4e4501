// SPDX-License-Identifier: Apache-2.0
// Whether a program makes sense: everything that can be known before memory is bound and before
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
  int64_t op = -1;  // index; -1: of the program as a whole
  std::string label;
  std::string rule;
  std::string text;  // with both types, or both ops
  Reason reason = Reason::kFieldInvalid;
};

// "op 3 add 'scale': same type: operands 0 and 1 are f32[4] and f32[5]"
std::string ToString(const Program& program, const Problem& problem);
// A label as problems show it: escaped, and no longer than labels may be.
std::string ShownLabel(absl::string_view label);
// "3 problems"; of kMaxProblems there may be more.
std::string ProblemsText(size_t problems);

// What one run may cost; the daemon may allow less than this.
struct Limits {
  uint64_t flops = kMaxFlops;
  uint64_t traffic = kMaxTraffic;
  uint64_t steps = kMaxSteps;
};

// Numbers, names and counts: what everything else relies on when it looks into a program; not of
// `unclear` ops.
std::vector<Problem> CheckStructure(const Program& program, const std::vector<bool>& unclear = {});

// All problems, kMaxProblems at most, by op where they have one. None: the program is good.
std::vector<Problem> Verify(const Program& program, const Limits& limits = {});
// The same of a program of which some ops, by index, are known to be bad, or to use what is: they
// are not looked at. Values, bodies and `after` of the others are in order.
std::vector<Problem> VerifyRest(const Program& program, std::vector<bool> unclear,
                                const Limits& limits = {});

// OK if there are none; else INVALID_ARGUMENT with the reason that all share, FIELD_INVALID if they
// do not.
absl::Status ToStatus(const Program& program, const std::vector<Problem>& problems);

}  // namespace ferry::compute
