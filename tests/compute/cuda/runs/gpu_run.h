// SPDX-License-Identifier: Apache-2.0
// Carries out a GPU plan, command by command, on whatever takes launches: the CPU in place of a
// GPU, or a GPU. Products that are a library's are made here. For tests. Single-threaded.
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
  // Memory of exactly so many bytes, and what is in it; addresses of 256 bytes' alignment.
  virtual uint64_t Allocate(const Bytes& bytes) = 0;
  virtual Bytes Read(uint64_t address, uint64_t bytes) = 0;
  virtual void Write(uint64_t address, const Bytes& bytes) = 0;
  virtual void Copy(uint64_t to, uint64_t from, uint64_t bytes) = 0;
  virtual void FreeAll() = 0;
  // Arguments as numbers, of 4 or 8 bytes each.
  virtual void Launch(const std::string& kernel, uint64_t blocks, uint32_t threads,
                      const std::vector<std::pair<uint64_t, uint32_t>>& arguments) = 0;
};

// What the buffers become.
std::vector<Bytes> RunGpuPlan(const GpuPlan& plan, const std::vector<Bytes>& buffers,
                              GpuMachine& machine);

}  // namespace ferry::compute::testing
