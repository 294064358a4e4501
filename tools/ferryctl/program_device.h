// SPDX-License-Identifier: Apache-2.0
// Measures how long a program takes on a device of the running daemon, a host device or a GPU, as a
// prepared job of a client, beside a copy within that device. Needs the daemon. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/program/cost.h"
#include "compute/program/program.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

struct DeviceTimes {
  struct Row {
    std::string step;  // the step's number; "run" for the whole run; "copy"
    std::string kind;
    std::string label;
    compute::Cost cost;  // the plan's estimate; of the copy, what it reads and writes
    bool measured = true;
    // Of one run after the other, each from the client's store until the client knows of its end.
    double median_s = 0;
    double p90_s = 0;
    double p99_s = 0;
    double in_a_row_s = 0;   // of a run while others are queued before it and behind it
    double estimated_s = 0;  // how long its bytes take at the copy's speed; of the copy, nothing
  };
  uint64_t device = 0;
  size_t runs = 1;
  std::string target;     // the last line of the daemon's plan: what runs it
  std::vector<Row> rows;  // the steps in order, the whole run, and the copy
};

// Runs `program`, and each step of its plan as a program of its own, on `device`, each once to warm
// up and then `runs` times one after the other and as often in a row. Steps within a repeat are not
// measured apart. Verify must accept the program. What it reads is filled with numbers between 0.5
// and 1 of both signs, of the type of the first op that reads the buffer. The copy reads and writes
// as many bytes as the plan does, or as the memory that the program needs allows.
// INVALID_ARGUMENT if the program sends or receives, or the daemon does not own the device; errors
// of the daemon as any client's.
absl::StatusOr<DeviceTimes> BenchOnDevice(const Globals& globals, const compute::Program& program,
                                          uint64_t device, size_t runs);

// A table for people, or JSON.
std::string ToText(const DeviceTimes& times, bool json);
// For each step, the whole run and the copy a line that says which numbers are estimates and which
// were measured.
std::string EstimatedAndMeasured(const DeviceTimes& times);

}  // namespace ferry::tools
