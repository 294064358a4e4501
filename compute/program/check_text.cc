// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute {

std::vector<TextProblem> CheckText(const ParsedText& parsed) {
  std::vector<TextProblem> all = parsed.problems;
  const Program& program = parsed.program;
  std::vector<Problem> found;
  if (parsed.whole) {
    std::vector<bool> unclear = parsed.unclear;
    found = CheckStructure(program, unclear);
    for (const Problem& problem : found) {
      if (problem.op >= 0) unclear[static_cast<size_t>(problem.op)] = true;
    }
    for (Problem& problem : VerifyRest(program, std::move(unclear))) {
      found.push_back(std::move(problem));
    }
  }
  for (const Problem& problem : found) {
    const int line = problem.op < 0 ? 0 : parsed.lines[static_cast<size_t>(problem.op)];
    all.push_back({line, 0, ToString(program, problem), problem.reason});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const TextProblem& a, const TextProblem& b) { return a.line < b.line; });
  all.resize(std::min(all.size(), kMaxProblems));
  return all;
}

std::string PlaceText(const TextProblem& problem) {
  if (problem.line == 0) return "";
  return problem.column == 0 ? absl::StrCat(problem.line)
                             : absl::StrCat(problem.line, ":", problem.column);
}

}  // namespace ferry::compute
