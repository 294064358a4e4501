// SPDX-License-Identifier: Apache-2.0
// Measures how long a compute program takes in this process, for each step of its plan and for the
// whole run. The program runs over memory of its own. Any thread.
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
    std::string step;  // the step's number; "run" for the whole run
    std::string kind;
    std::string label;
    std::string by;      // which code multiplies, in a product
    compute::Cost cost;  // the plan's estimate
    double median_s = 0;
    double least_s = 0;
  };
  size_t threads = 1;
  size_t runs = 1;
  std::string cpu;
  std::vector<Row> rows;  // one row a step; the last row is the whole run
};

// Runs `program` once to warm up and then `runs` times. Verify must accept it. Buffers that the
// program reads are filled with numbers around 1, of the types that it reads there. Constant
// buffers count as constant, as in a prepared job. INVALID_ARGUMENT if the program sends or
// receives.
absl::StatusOr<ProgramTimes> BenchProgram(const compute::Program& program, size_t threads,
                                          size_t runs);

// A table for people, or JSON.
std::string ToText(const ProgramTimes& times, bool json);

}  // namespace ferry::tools
