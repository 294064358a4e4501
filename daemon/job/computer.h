// SPDX-License-Identifier: Apache-2.0
// Who computes programs: the CPU's threads, or a GPU. A Computer runs one program at a time, and
// makes the memory that runs have for scratch. A GPU's takes runs ahead: the next one is queued
// while those before it are under way, so that the GPU does not pause between them. Owned by a
// JobRunner. Home: the thread that runs the programs; Free also whoever takes the JobRunner down.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "base/ids.h"
#include "compute/cuda/run/gpu_machine.h"
#include "compute/host/host_program.h"
#include "compute/host/workers.h"
#include "daemon/job/compiled_program.h"
#include "daemon/job/scratch.h"
#include "device/cuda/loss_story.h"

namespace ferry {

class Computer : public ScratchMaker {
 public:
  // The run of some sections of a program, one after the other. The sections before must be over.
  struct Run {
    TransferId job;
    uint32_t uid = 0;  // the user whose session posted it
    const CompiledProgram& program;
    Sections* sections = nullptr;  // null: the program's only section
    // By buffer, of the buffer's size. Nobody else may touch it, except to read what the
    // sections only read.
    absl::Span<const absl::Span<std::byte>> memory;
    // The same for all sections of a run. With `from_constants` it may be from_constants_bytes()
    // smaller than scratch_bytes().
    absl::Span<std::byte> scratch;
    compute::HostProgram::StepOver step_over;
    compute::RunControl::MayGoOn may_go_on;
    compute::HostProgram::FromConstants* from_constants = nullptr;
    compute::HostProgram::Aside& aside;
    bool receives = false;  // see GpuMachine::Work
    // Whether Do may return before the sections are over. Their buffers, their scratch and what
    // `step_over` uses must stay until then; runs that are under way may have the same scratch.
    bool may_lag = false;
  };
  // Runs the sections. The program must be compiled for this Computer's target. CANCELLED, with how
  // far it got, if `may_go_on` said no before a launch. OK in three cases: the sections are over;
  // the run was put aside (`aside` says so); the run lags, and then begun() has grown. In the first
  // two cases nothing that Do was called for is under way afterwards; but a call that has queued
  // nothing, after which begun() is as before, has waited for nobody. A run that lags is under way
  // while over() is less than begun(). It may be over when Do returns, with steps that are untold
  // until Tell is called.
  virtual absl::Status Do(const Run& run) = 0;
  // Calls of Do that had something to queue are numbered from 1: the number of the last one, and up
  // to which number all sections are over. A Computer that never lags numbers none.
  virtual uint64_t begun() const { return 0; }
  virtual uint64_t over() const { return 0; }
  // What all runs have had a GPU do: launches, copies and products. 0 of a CPU.
  virtual uint64_t launches() const { return 0; }
  // Calls `step_over` of runs that lag, or have lagged, for steps that are over; of runs that are
  // over() now, for all. An error is one of Look's; no step is told of after it.
  virtual absl::Status Tell() { return absl::OkStatus(); }
  // As many posted jobs as should be handed to the thread at a time.
  virtual size_t jobs_ahead() const { return 2; }
  // For a caller that sees over() stand still: whether a section that lags has failed.
  virtual absl::Status Look() { return absl::OkStatus(); }
  // Blocks until all sections are over, and tells of their steps.
  virtual absl::Status Await() { return absl::OkStatus(); }
  // Work (CompiledProgram::work) that it is assumed to do in a nanosecond. It only weighs estimates
  // (JobRunner::WorkIn).
  virtual uint64_t work_per_ns() const = 0;
  // Gives back what it holds between runs, such as a GPU's context. All scratch is gone.
  virtual void LetGo() {}
};

// The CPU. `threads`: as many as programs are compiled for.
class HostComputer : public Computer {
 public:
  explicit HostComputer(size_t threads) : workers_(threads) {}

  absl::Status Do(const Run& run) override;
  uint64_t work_per_ns() const override { return 10; }
  absl::StatusOr<std::byte*> Make(uint64_t bytes) override;
  void Free(std::byte* memory, uint64_t bytes) override;

 private:
  compute::Workers workers_;
  [[no_unique_address]] HomeChecker home_;
};

// A GPU.
class GpuComputer : public Computer {
 public:
  // `cublaslt` outlives the object; null: it runs no program that is compiled for it.
  explicit GpuComputer(CudaDevice& device, const compute::CublasLtLibrary* cublaslt = nullptr)
      : device_(device), machine_(device, cublaslt) {}

  absl::Status Do(const Run& run) override;
  uint64_t begun() const override { return machine_.begun(); }
  uint64_t over() const override { return machine_.over(); }
  uint64_t launches() const override { return machine_.launches(); }
  absl::Status Tell() override { return machine_.Tell(); }
  // While another process uses the GPU too, its turn lasts until nothing of this one is queued.
  static constexpr size_t kJobsAhead = 32;
  size_t jobs_ahead() const override { return kJobsAhead; }
  static constexpr size_t kMostUnderWay = 64;  // runs
  absl::Status Look() override { return machine_.Look(); }
  absl::Status Await() override { return machine_.Await(); }
  uint64_t work_per_ns() const override { return 1000; }
  absl::StatusOr<std::byte*> Make(uint64_t bytes) override;
  void Free(std::byte* memory, uint64_t bytes) override;
  void LetGo() override;

  struct AtWork {
    TransferId job;
    uint32_t uid = 0;
    std::string fingerprint;  // 32 bytes
  };
  // The run that the GPU is at: of those that are under way, the oldest. Nothing: none is. Any
  // thread, also after the GPU was lost.
  std::optional<AtWork> at_work() const;
  const CudaDevice& device() const { return device_; }

 private:
  // What a run is called if the GPU is lost while it is under way: read by any thread then.
  struct Name {
    std::atomic<uint64_t> job{0};  // TransferId
    std::atomic<uint32_t> uid{0};
    std::array<std::atomic<uint64_t>, 4> program = {};  // its fingerprint, as its bytes are
  };
  const Name& NameOf(uint64_t number) const { return names_[number % names_.size()]; }
  static std::string FingerprintOf(const Name& name);
  // Runs that are under way, the oldest first: it is the one that runs.
  std::string UnderWay() const;

  const CudaDevice& device_;
  compute::GpuMachine machine_;
  // By number modulo their count, of the runs that were begun last: more than are under way.
  std::array<Name, kMostUnderWay> names_;
  const LossStory story_{[this](const LossStory::Loss&) { return UnderWay(); }};
  // By its address.
  absl::flat_hash_map<std::byte*, std::unique_ptr<DeviceMemory>> scratch_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
