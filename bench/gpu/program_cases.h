// SPDX-License-Identifier: Apache-2.0
// The programs whose speed on a GPU case_programs.h measures. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ferry::bench {

struct ProgramCase {
  std::string name;
  std::string text;
  // By buffer, in bytes: what is read and written, each byte once, unless `counted` says otherwise.
  std::vector<std::pair<std::string, uint64_t>> buffers;
  double target = 0;  // of a copy's bytes per second
  // Run once before, over the buffers that `filled` names: what the program is to find there.
  std::string fill = "";
  std::vector<std::string> filled = {};
  // Not 0: measured by its time instead, and compared with a copy of so many bytes; `target` is the
  // most.
  uint64_t whole_copy = 0;
  uint64_t counted = 0;    // bytes that are read and written, if it is not 0
  const char* torch = "";  // its name in MeasureTorchCompile, if it has one

  uint64_t bytes() const {
    uint64_t all = 0;
    for (const auto& [name, bytes] : buffers) all += bytes;
    return all;
  }
  uint64_t moved() const { return counted > 0 ? counted : bytes(); }
};

std::vector<ProgramCase> ProgramCases();
// Ten ops on four elements each, which are one kernel; `target` is in us.
ProgramCase TinyProgram();
// The text of 40 ops in one kernel, which no kernel before was that had another `number`. `mebi`:
// elements, in units of 2^20; the kernel is the same for any.
std::string UnknownProgram(int number, uint64_t mebi);

}  // namespace ferry::bench
