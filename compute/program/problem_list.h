// SPDX-License-Identifier: Apache-2.0
// Collects the problems that Verify finds, at most kMaxProblems. Single-threaded; must not outlive
// the program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "compute/program/verify.h"

namespace ferry::compute {

class ProblemList {
 public:
  explicit ProblemList(const Program& program) : program_(program) {}

  void Add(int64_t op, absl::string_view rule, std::string text,
           Reason reason = Reason::kFieldInvalid) {
    if (full()) return;
    const std::string label = op >= 0 ? program_.nodes[op].label : "";
    problems_.push_back({op, label, std::string(rule), std::move(text), reason});
  }
  bool full() const { return problems_.size() >= kMaxProblems; }
  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }
  std::vector<Problem> Take() { return std::move(problems_); }

 private:
  const Program& program_;
  std::vector<Problem> problems_;
};

// By op: its content is unknown, and it is not checked.
using UnclearOps = std::vector<bool>;

// Checks that ops of one block that touch overlapping bytes of a buffer, at least one of them
// writing, are ordered one after the other; and that what an `input` has read is overwritten only
// if the buffer is donated. An unclear op counts as `after` all ops above it.
void CheckOrder(const Program& program, const UnclearOps& unclear, ProblemList& problems);

// Checks that no op reads a value that `empty` made and of which nothing was written.
void CheckWritten(const Program& program, const UnclearOps& unclear, ProblemList& problems);

}  // namespace ferry::compute
