// SPDX-License-Identifier: Apache-2.0
// The programs over which a GPU is compared with the reference, numbered, so that the kernels of
// all of them can be compiled on another machine (make_kernels.cc). Pure functions.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/program/program.h"

namespace ferry::testing {

enum class Suite : uint8_t {
  kTemplates,  // every kernel template, for each type that it takes
  kBytes,      // checksums and deltas
  kNumbers,    // conversions and quotients of single numbers
  // The programs of the CPU's tests in tests/compute/host, above all of host_program_test.cc:
  kWoven,   // matrices of one size: fused ops, reductions, loops
  kBlocks,  // random programs whose kernels take several blocks of threads
  kSmall,   // random programs of 60 ops
  kLong,    // random programs of 150 ops
  kLeaves,  // random programs of which only what nothing else takes is stored
  kShapes,  // tests/compute/shaped_programs.h, of which columns_test.cc has some
  kNorms,   // softmax and norms as JAX prints them: keepdims_test.cc
  // Of no test of the CPU:
  kRandom,  // random programs of 12 ops
};
inline constexpr Suite kSuites[] = {Suite::kTemplates, Suite::kBytes,  Suite::kNumbers,
                                    Suite::kWoven,     Suite::kBlocks, Suite::kSmall,
                                    Suite::kLong,      Suite::kShapes, Suite::kNorms,
                                    Suite::kLeaves,    Suite::kRandom};
// How many random programs of 12 ops there are.
inline constexpr uint64_t kRandomPrograms = 2000;

struct SuiteProgram {
  compute::Program program;
  uint64_t seed = 0;   // of the buffers' contents at first
  bool small = false;  // floating numbers of the contents are from 0 to 1.5, and no NaN
  compute::GpuOptions options;
};

// Calls `act` with the programs of `suite` from number `first` on, at most `count` of them, until
// it returns false.
void ForEachProgram(Suite suite, uint64_t first, uint64_t count,
                    absl::FunctionRef<bool(const SuiteProgram&)> act);

// The file of a directory of compiled kernels that has the version of the NVRTC that compiled them,
// which is part of their keys: the machine that runs them may have another one, or none.
inline constexpr char kVersionFile[] = "nvrtc-version";

}  // namespace ferry::testing
