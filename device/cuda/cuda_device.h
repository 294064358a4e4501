// SPDX-License-Identifier: Apache-2.0
// One GPU, found by its UUID: its context, its memory, and the copiers of its lane. The context
// exists only while something holds it. Memory and registrations that the device hands out hold it;
// when the last of them is destroyed the context goes.
//
// Home: any thread that may block, which are memory threads: one lock orders the calls. The copiers
// are the lane's. They are used only while memory of this GPU is held by what they copy, so their
// streams stay. Outlives all that it hands out.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "device/copier.h"
#include "device/memory.h"

struct CUctx_st;

namespace ferry {

struct CudaApi;
struct CudaEngine;
class Nvml;

struct GpuInfo {
  int ordinal = 0;   // the driver's number of the GPU in this process
  std::string uuid;  // 16 bytes
  std::string name;  // "NVIDIA H200"
  uint64_t bytes = 0;
  std::string pci;  // PCI address, "0000:19:00.0"
  int numa = -1;    // nearest NUMA node; -1: not known
  int major = 0;    // its compute capability: 9.0 has 9 and 0
  int minor = 0;
  std::string driver;      // the CUDA version of its driver: "CUDA 13.0"
  int driver_version = 0;  // the same as the driver says it: 13000
  std::string unusable;    // why there can be no arenas on it; empty: there can
  // Its UUID as nvidia-smi prints it: "GPU-01234567-89ab-cdef-0123-456789abcdef".
  std::string uuid_text() const;
};

// What a lane copies for. Each use has streams of its own, so that none waits for another's steps.
enum class CopyUse : uint8_t {
  kTransfers,
  kPrepared,  // goes before the other uses
  kStageOut,  // to host memory, to be sent on from there
  kStageIn,   // from host memory, into which it was received
};

// The GPUs that this process sees. UNAVAILABLE/NOT_READY if there can be none, with why.
absl::StatusOr<std::vector<GpuInfo>> FindGpus(const std::string& library);

class CudaDevice {
 public:
  // `library` was opened by FindGpus(). `team`: the ordinals of all GPUs of this daemon, this one
  // too: they are given access to memory that is mapped here. `nvml` may be null, and outlives this
  // object: it says how much memory is free while there is no context, and which GPUs NVLink joins
  // with this one.
  CudaDevice(const std::string& library, GpuInfo info, std::vector<int> team,
             const Nvml* nvml = nullptr);
  ~CudaDevice();

  const GpuInfo& info() const { return info_; }

  // Allocates memory (kCudaAllocate), imports it (kCudaVmm) or opens it (kCudaIpc). `ours`: it must
  // be this GPU's memory; else it may be that of any GPU that can be reached. Takes the descriptors
  // in any case. RESOURCE_EXHAUSTED/DEVICE_MEMORY, which says what was asked for and what is free;
  // INVALID_ARGUMENT/FIELD_INVALID; FAILED_PRECONDITION/NOT_READY (the GPU is released);
  // UNAVAILABLE/NOT_READY.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Map(const MemoryShare& share,
                                                    std::vector<UniqueFd> fds, bool ours = true);
  // Registers host memory with the GPU: unregistered memory would be staged by the driver, and hold
  // up the lane.
  absl::StatusOr<std::unique_ptr<MemoryRegistration>> Register(const DeviceMemory& host,
                                                               bool read_only);
  // Whether this GPU may copy faster to and from the memory after a try of Open(); CudaMemory says
  // why. Any thread.
  bool WantsOpening(const DeviceMemory& memory) const;
  absl::Status Open(const DeviceMemory& memory);
  // The memory's address for this GPU. Any thread.
  std::byte* AddressOf(const DeviceMemory& memory) const;
  // OK if this GPU's copy engine can touch the memory; else why not. Any thread.
  absl::Status CanReach(const DeviceMemory& memory) const;
  // Whether this GPU's kernels can touch the memory too.
  bool KernelsCanReach(const DeviceMemory& memory) const;
  // Whether this GPU can reach the memory of the driver's GPU `ordinal`; nothing if the driver does
  // not say. Any thread.
  std::optional<bool> HasPeerAccess(int ordinal) const;
  // Whether the memory is this GPU's own, or that of a GPU that NVLink joins with it, as NVML says.
  // Any thread.
  bool IsNear(const DeviceMemory& memory) const;

  // Gives the GPU back: it is not used from then on, until Reclaim(). FAILED_PRECONDITION while
  // something of it is in use.
  absl::Status Release();
  void Reclaim();
  struct Usage {
    bool context = false;
    bool released = false;
    uint64_t holds = 0;  // memories and registrations that are handed out
  };
  Usage usage() const;  // any thread, at once
  // Free memory of the GPU, in bytes, as NVML says it; if it does not, as the driver says it while
  // a context is open; else nothing.
  std::optional<uint64_t> FreeBytes();

  // Whether copiers of kTransfers and kPrepared have steps under way that were not reported. Any
  // thread.
  bool copying() const { return copies_.load(std::memory_order_relaxed) > 0; }

  // Makes the copier for one use; each use once. For the lane. `sms_busy`, if given, is called on
  // the lane when a kernel of the copier came late: the SMs count as busy until that time (SmLoad).
  std::unique_ptr<Copier> MakeCopier(CopyUse use, std::function<void(absl::Time)> sms_busy = {});

  // Makes host memory for this device's own use, which is registered whenever there is a context:
  // copies of it hold up nothing. Once, before the device is used.
  absl::StatusOr<absl::Span<std::byte>> MakeStaging(size_t bytes);
  // For the lane, while it holds memory of this GPU: makes this GPU's context current, which UCX
  // asks CUDA for.
  void MakeCurrent() const;

 private:
  friend class CudaMemory;
  friend class CudaRegistration;
  friend class CudaCopier;
  friend class CudaStream;

  // Holds the context, opening it if needed; it is current on this thread afterwards.
  absl::Status Hold();
  void Letgo();
  void FindNear();
  absl::Status OpenContext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Loads the gather kernels for the copiers' engines; without them they use the copy engine alone.
  void LoadGather() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RegisterStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseContext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Name() const;
  // `status`, which refuses `bytes`; if the driver has no memory left, with how much is free.
  absl::Status WithFree(const absl::Status& status, uint64_t bytes);

  const CudaApi& api_;
  const GpuInfo info_;
  const std::vector<int> team_;
  const Nvml* const nvml_;
  std::vector<int> near_;  // ordinals of the near GPUs, this one among them; constant once found
  Mutex mutex_;
  // Written under the lock.
  std::atomic<uint64_t> holds_{0};
  std::atomic<bool> released_{false};
  // Set while holds_ is not 0; read without the lock by those who hold.
  CUctx_st* context_ = nullptr;
  static constexpr size_t kCopyEngines = 4;  // by CopyUse
  // By CopyUse; the last one is for the memories' own use.
  std::unique_ptr<CudaEngine> engines_[kCopyEngines + 1];
  std::atomic<int> copies_{0};
  absl::Span<std::byte> staging_;
  bool staging_registered_ = false;
};

}  // namespace ferry
