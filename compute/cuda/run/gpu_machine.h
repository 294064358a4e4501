// SPDX-License-Identifier: Apache-2.0
// Runs programs on one GPU, one at a time, on a stream that gives way to transfers. It keeps the
// kernels that it has loaded. The GPU's context is held from the first run, or the first scratch,
// until Close.
//
// A run queues the plan's commands in order, and at most kAhead parts of it are queued and not over
// at any time, so that it can be stopped, or put aside, soon.
//
// Home: the thread that runs the programs. The GPU must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "compute/cuda/run/gpu_program.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_kernel.h"
#include "device/cuda/cuda_stream.h"
#include "device/memory.h"

namespace ferry::compute {

class GpuMachine {
 public:
  // Parts of a run that are queued at a time; a part is a few launches.
  static constexpr uint64_t kAhead = 4;

  // Where a run is that was put aside: the first step that it has not begun.
  struct Aside {
    std::function<bool()> wanted;  // asked between steps; true: put the run aside
    bool put = false;
    size_t step = 0;
  };
  using MayGoOn = std::function<bool()>;
  using StepOver = std::function<void(size_t step)>;

  explicit GpuMachine(CudaDevice& device) : device_(device) {}
  GpuMachine(const GpuMachine&) = delete;
  GpuMachine& operator=(const GpuMachine&) = delete;
  ~GpuMachine() { CloseStream(); }

  // Memory of the GPU, at least `bytes` (not 0). RESOURCE_EXHAUSTED/DEVICE_MEMORY, with what is
  // free.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(uint64_t bytes);

  // Runs the plan's steps from `begin`, or from where `aside` is, to before `end`. `buffers`: the
  // memory of each buffer, of this GPU, aligned to GpuProgram::kBufferAlignment. `scratch`: of this
  // GPU, scratch_bytes() long, aligned to kTemporaryAlignment. `step_over` is called when a step's
  // launches are over, in order. CANCELLED if `may_go_on` said no before a launch; nothing of the
  // run is under way then. Any other error of CUDA ends the run; one that means that the GPU is
  // lost ends the process.
  absl::Status Run(const GpuProgram& program, size_t begin, size_t end, const MayGoOn& may_go_on,
                   absl::Span<const absl::Span<std::byte>> buffers, absl::Span<std::byte> scratch,
                   const StepOver& step_over, Aside& aside);

  // Gives the context back. No memory of Allocate may be left.
  void Close();
  bool open() const { return stream_ != nullptr; }
  // Kernels that are loaded now.
  size_t loaded() const { return kernels_.size(); }

 private:
  struct Running;

  absl::Status Open();
  void CloseStream();
  absl::StatusOr<const CudaKernel*> KernelOf(const CompiledKernel& code);
  absl::Status QueueAll(Running& run, absl::Span<const GpuCommand> commands);
  absl::Status Queue(Running& run, const GpuCommand& command);
  absl::Status QueueLaunch(Running& run, const GpuCommand& command);
  // Ends a part of the run: at most kAhead are queued afterwards.
  absl::Status EndPart();
  absl::Status Await();

  CudaDevice& device_;
  std::unique_ptr<CudaStream> stream_;
  absl::flat_hash_map<const CompiledKernel*, std::unique_ptr<CudaKernel>> kernels_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry::compute
