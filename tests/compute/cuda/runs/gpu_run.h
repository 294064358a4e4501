// SPDX-License-Identifier: Apache-2.0
// Carries out a GPU plan, command by command, on a GpuMachine: a GPU, or the CPU in its place.
// Library products are computed here. For tests. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compute/cuda/gpu_plan.h"
#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {

class GpuMachine {
 public:
  virtual ~GpuMachine() = default;
  // Allocates memory of exactly the size of `bytes`, aligned to 256 bytes, and fills it with
  // `bytes`. Returns its address.
  virtual uint64_t Allocate(const Bytes& bytes) = 0;
  virtual Bytes Read(uint64_t address, uint64_t bytes) = 0;
  virtual void Write(uint64_t address, const Bytes& bytes) = 0;
  virtual void Copy(uint64_t to, uint64_t from, uint64_t bytes) = 0;
  virtual void FreeAll() = 0;
  // Launches a kernel. An argument is a number and its size, 4 or 8 bytes.
  virtual void Launch(const std::string& kernel, uint64_t blocks, uint32_t threads,
                      const std::vector<std::pair<uint64_t, uint32_t>>& arguments) = 0;
};

// Returns what the buffers contain afterwards.
std::vector<Bytes> RunGpuPlan(const GpuPlan& plan, const std::vector<Bytes>& buffers,
                              GpuMachine& machine);

}  // namespace ferry::compute::testing
