// SPDX-License-Identifier: Apache-2.0
// What a run of a program costs, counted from shapes alone: for limits, deadlines and the plan.
// Pure functions. All sums saturate.
#pragma once

#include <cstdint>
#include <limits>

#include "compute/program/program.h"

namespace ferry::compute {

struct Cost {
  uint64_t flops = 0;
  uint64_t transcendentals = 0;  // functions, which `flops` does not count
  uint64_t bytes_read = 0;       // of buffers, not of values; of an input, what is used of it
  uint64_t bytes_written = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t steps = 0;  // ops, each as often as it runs
};

constexpr uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

constexpr uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  return product > most ? most : static_cast<uint64_t>(product);
}

// The cost in one number: roughly the bytes that could be copied in the same time. A transcendental
// function counts as kBytesOfTranscendental bytes; bytes sent and received do not count.
inline constexpr uint64_t kBytesOfTranscendental = 8;
uint64_t WorkOf(const Cost& cost);

// The cost of one op, run once: of a repeat without its body, of an input as if all of it were
// used.
Cost CostOf(const Program& program, const Node& node);
// The cost of a run. CheckStructure must accept the program, and its types must be good by
// themselves.
Cost CostOf(const Program& program);

}  // namespace ferry::compute
