// SPDX-License-Identifier: Apache-2.0
// Runs programs on one GPU, one at a time, on a stream that gives way to transfers. It keeps the
// kernels that it has loaded. The GPU's context is held from the first run, or the first scratch,
// until Close.
//
// A run queues the plan's commands in order. A run may lag: then Run returns when all of it is
// queued, and the next run can be queued behind it, so that the GPU does not pause between the two.
// Runs end in the order in which they were begun, and steps are told of in the order in which they
// were queued. What is queued goes in parts of up to eight launches; a step that somebody hears of
// ends a part. At most kLaunchesAhead launches and the part that is being queued are not over at
// any time, whichever runs they are of, so that a run can be stopped, or put aside, soon.
//
// Home: the thread that runs the programs. The GPU must outlive it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "compute/cuda/run/cublaslt_products.h"
#include "compute/cuda/run/gpu_program.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_kernel.h"
#include "device/cuda/cuda_stream.h"
#include "device/memory.h"

namespace ferry::compute {

class GpuMachine {
 public:
  // A large product counts as several launches, a transfer as none. While another process uses the
  // GPU as well, a process has its turn every few milliseconds, until nothing of it is queued: what
  // is not ahead then waits for the next turn.
  static constexpr int kLaunchesAhead = 32;

  // Where a run is that was put aside: the first step that it has not begun.
  struct Aside {
    std::function<bool()> wanted;  // asked between steps; true: put the run aside
    bool put = false;
    size_t step = 0;
  };
  using MayGoOn = std::function<bool()>;
  using StepOver = std::function<void(size_t step)>;

  // `library`, which must outlive the machine, makes products that programs are planned to have of
  // it. Null: no program that it runs is planned so.
  explicit GpuMachine(CudaDevice& device, const CublasLtLibrary* library = nullptr)
      : device_(device), library_(library) {}
  GpuMachine(const GpuMachine&) = delete;
  GpuMachine& operator=(const GpuMachine&) = delete;
  ~GpuMachine() { CloseStream(); }

  // Memory of the GPU, at least `bytes` (not 0). RESOURCE_EXHAUSTED/DEVICE_MEMORY, with what is
  // free.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(uint64_t bytes);

  // What one call of Run runs.
  struct Work {
    const GpuProgram& program;
    // The plan's steps from `begin`, or from where the run was put aside, to before the step that
    // `end` returns. Run calls `end` on its own thread, again and again until all that it has
    // queued is over, and goes on with the steps that a larger result adds. Results never shrink.
    size_t begin = 0;
    std::function<size_t()> end;
    // The memory of each buffer, of this GPU, aligned to GpuProgram::kBufferAlignment.
    absl::Span<const absl::Span<std::byte>> buffers;
    // Of this GPU, scratch_bytes() long, aligned to kTemporaryAlignment. Runs that are under way
    // may share it, since they have their turns on one stream.
    absl::Span<std::byte> scratch;
    MayGoOn may_go_on = nullptr;  // asked before each launch
    // Called for each step, in order, once its launches are over, while later steps are under way:
    // by Run, or by Tell or Await, if the run lags. A step that is a transfer is no work here: a
    // send is over with the step before it, which may be one of an earlier run; so is a receive,
    // but before the run has queued anything it is over at once.
    StepOver step_over = nullptr;
    // Whether the run receives bytes by itself, or is joined to transfers that do. Then a kernel
    // that is launched while the GPU has transfers' copies under way leaves room for them
    // (CudaStream::Launch).
    bool receives = false;
    // Whether Run may return before the run is over. It does not while the run may grow, which is
    // as long as `end` is not the plan's, and steps of it are under way. The memory of buffers and
    // scratch, and what `step_over` uses, must stay until the run is over.
    bool may_lag = false;
  };
  // Runs steps. OK: the run is over, was put aside (`aside` tells), or lags, which it may do if it
  // was begun (begun() has grown). A run that lags is over as soon as over() is not less than
  // begun(), which may be so when Run returns: Tell must be called then too, since its steps may be
  // untold. A run that has nothing to queue is not begun, and waits for no other. CANCELLED if
  // `may_go_on` said no before a launch. Any other error of CUDA ends the run; one that means that
  // the GPU is lost ends the process. But for a run that lags or was not begun, nothing of this and
  // of earlier runs is under way when Run returns.
  absl::Status Run(const Work& work, Aside& aside);
  // Tells of steps that are over, of runs that lag, or have lagged and are over since. The steps of
  // a run that is over() when Tell is called are all told of when it returns. After an error no
  // step of any run that was begun is told of.
  absl::Status Tell();
  // Runs are numbered from 1, in the order in which they were begun. Any thread, also after the GPU
  // was lost: the number of the run that was begun last; all runs up to which number are over.
  uint64_t begun() const { return begun_.load(std::memory_order_acquire); }
  uint64_t over() const;
  // Any thread, also after the GPU was lost: the run that the GPU is at, which is over() + 1, or a
  // later one that has begun before it was told that those before it are over.
  uint64_t current() const;
  // For a caller that sees over() stand still: asks the driver whether a run that lags has failed.
  absl::Status Look();
  // Blocks until all runs are over, and tells of their steps.
  absl::Status Await();

  // Gives the context back. No run may lag, and no memory of Allocate may be left.
  void Close();
  bool open() const { return stream_ != nullptr; }
  // What all runs have queued: launches of kernels, copies and calls of cuBLASLt. Home alone.
  uint64_t launches() const { return launches_; }
  // Kernels that are loaded now.
  size_t loaded() const { return kernels_.size(); }
  // Products that cuBLASLt was asked about, and is not asked about again.
  size_t prepared_products() const { return products_ == nullptr ? 0 : products_->prepared(); }

 private:
  static constexpr size_t kBegunAt = 64;

  struct Running;
  // A step that is queued and not told of.
  struct Untold {
    uint64_t mark = 0;  // behind its launches
    uint64_t run = 0;   // its run's number
    size_t step = 0;
    StepOver step_over;
  };
  struct alignas(4096) Page {
    std::byte bytes[4096] = {};
  };

  absl::Status Open();
  void CloseStream();
  absl::StatusOr<const CudaKernel*> KernelOf(const CompiledKernel& code);
  // The run has something to queue.
  void Begin(Running& run);
  // Whether the run, which was begun last if it was begun, has steps that are not told of.
  bool HasUntold(const Running& run) const;
  // Of a program that runs by its full kernels from now on, as long as no run is under way but the
  // one that begins: unloads what ran until they were there.
  void DropFirstTiers(const GpuProgram& program);
  // Queues the run's steps from `step` on. OK: all are queued, or the run is to be put aside.
  absl::Status QueueSteps(Running& run, size_t step, Aside& aside);
  absl::Status QueueAll(Running& run, absl::Span<const GpuCommand> commands);
  absl::Status Queue(Running& run, const GpuCommand& command);
  absl::Status QueueLaunch(Running& run, const GpuCommand& command);
  absl::Status QueueProduct(Running& run, const GpuProduct& product);
  // Ends the part, if anything is queued in it.
  absl::Status EndPart();
  // Whether more launches than may be ahead are not over.
  absl::StatusOr<bool> IsFull();
  // The step's launches are queued: has whoever hears of steps hear of it when they are over.
  absl::Status EndStep(Running& run, size_t step);
  // Waits until at least one step more is told of, of whichever run. If `end` is set, which is the
  // run's end as it is known, also returns when the run's end has grown.
  absl::Status AwaitStep(Running& run, std::optional<size_t> end);
  // Blocks until all that was queued is over, also what a run has queued that goes on.
  absl::Status AwaitQueued();
  // Has the GPU say when the run that was begun last is over. False if it cannot.
  bool Report();

  CudaDevice& device_;
  const CublasLtLibrary* const library_;
  // The stream's report page: its first 8 bytes tell which run is over, those at kBegunAt which has
  // begun, which a run's first kernel says.
  const std::unique_ptr<Page> page_ = std::make_unique<Page>();
  std::unique_ptr<CudaStream> stream_;
  struct Part {
    uint64_t mark = 0;  // behind its launches
    int launches = 0;
  };
  std::deque<Part> parts_;     // those that are not known to be over, in order
  int queued_ = 0;             // launches of the part that is being queued
  std::deque<Untold> untold_;  // of all runs, in order
  uint64_t launches_ = 0;
  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> awaited_{0};  // runs up to this number are over, since somebody has waited
  absl::flat_hash_map<const CompiledKernel*, std::unique_ptr<CudaKernel>> kernels_;
  std::unique_ptr<CublasLtProducts> products_;  // from the first product on
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry::compute
