// SPDX-License-Identifier: Apache-2.0
// Who computes programs: the CPU's threads, or a GPU. A Computer runs one program at a time, and
// makes the memory that runs have for scratch. Owned by a JobRunner. Home: the thread that runs the
// programs; Free also whoever takes the JobRunner down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "compute/cuda/run/gpu_machine.h"
#include "compute/host/host_program.h"
#include "compute/host/workers.h"
#include "daemon/job/compiled_program.h"
#include "daemon/job/scratch.h"

namespace ferry {

class Computer : public ScratchMaker {
 public:
  // The run of one section of a program. The sections before must be over.
  struct Run {
    const CompiledProgram& program;
    size_t section = 0;
    // By buffer, of the buffer's size. Nobody else may touch it, except to read what the section
    // only reads.
    absl::Span<const absl::Span<std::byte>> memory;
    // The same for all sections of a run. With `from_constants` it may be from_constants_bytes()
    // smaller than scratch_bytes().
    absl::Span<std::byte> scratch;
    compute::HostProgram::StepOver step_over;
    compute::RunControl::MayGoOn may_go_on;
    compute::HostProgram::FromConstants* from_constants = nullptr;
    compute::HostProgram::Aside& aside;
  };
  // Runs a section. The program must be compiled for this Computer's target. CANCELLED, with how
  // far it got, if `may_go_on` said no before a launch. OK if the section is over, or if the run
  // was put aside (`aside` tells).
  virtual absl::Status Do(const Run& run) = 0;
  // Gives back what it holds between runs, such as a GPU's context. All scratch is gone.
  virtual void LetGo() {}
};

// The CPU. `threads`: as many as programs are compiled for.
class HostComputer : public Computer {
 public:
  explicit HostComputer(size_t threads) : workers_(threads) {}

  absl::Status Do(const Run& run) override;
  absl::StatusOr<std::byte*> Make(uint64_t bytes) override;
  void Free(std::byte* memory, uint64_t bytes) override;

 private:
  compute::Workers workers_;
  [[no_unique_address]] HomeChecker home_;
};

// A GPU.
class GpuComputer : public Computer {
 public:
  explicit GpuComputer(CudaDevice& device) : machine_(device) {}

  absl::Status Do(const Run& run) override;
  absl::StatusOr<std::byte*> Make(uint64_t bytes) override;
  void Free(std::byte* memory, uint64_t bytes) override;
  void LetGo() override;

 private:
  compute::GpuMachine machine_;
  // By its address.
  absl::flat_hash_map<std::byte*, std::unique_ptr<DeviceMemory>> scratch_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
