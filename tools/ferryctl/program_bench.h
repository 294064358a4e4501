// SPDX-License-Identifier: Apache-2.0
// How long a compute program takes in this process, step by step of its plan, over memory of its
// own. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/program/cost.h"
#include "compute/program/program.h"

namespace ferry::tools {

struct ProgramTimes {
  struct Row {
    std::string step;  // its number; of the whole run "run"
    std::string kind;
    std::string label;
    std::string by;      // who multiplies, of a product
    compute::Cost cost;  // as the plan estimates it
    double median_s = 0;
    double least_s = 0;
  };
  size_t threads = 1;
  size_t runs = 1;
  std::string cpu;
  std::vector<Row> rows;  // the run itself is the last one
};

// Runs `program`, which Verify accepts, once to warm up and then `runs` times. Buffers that it
// reads hold numbers around 1 of the types that it reads there; constant ones are, as those of a
// prepared job are. INVALID_ARGUMENT if it sends or receives.
absl::StatusOr<ProgramTimes> BenchProgram(const compute::Program& program, size_t threads,
                                          size_t runs);

// A table for people, or JSON.
std::string ToText(const ProgramTimes& times, bool json);

}  // namespace ferry::tools
