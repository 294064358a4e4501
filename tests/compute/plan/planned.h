// SPDX-License-Identifier: Apache-2.0
// The plan of a program that is given as text, and what its steps are. For tests; single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compute/passes/passes.h"
#include "compute/plan/plan.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute::testing {

// Of the text without its first line, `program 1`.
inline Plan PlanOf(const std::string& text) {
  const ParsedText parsed = Parse("program 1\n" + text);
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ": " << problem.text;
  }
  EXPECT_EQ(ToStatus(parsed.program, Verify(parsed.program)), absl::OkStatus());
  auto plan = MakePlan(Simplify(parsed.program));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// Kinds and labels: "kernel a, send send".
inline std::string StepsOf(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps) {
    const auto kind = kStepNames[static_cast<size_t>(step.kind)];
    absl::StrAppend(&text, text.empty() ? "" : ", ", kind, " ", step.label);
  }
  return text;
}

}  // namespace ferry::compute::testing
