// SPDX-License-Identifier: Apache-2.0
// One GPU, found by its UUID: its context, which exists only while something needs it, its memory,
// and the copiers of its lane. What it hands out (memory, pins) holds the context; when the last of
// these goes, so does the context.
//
// Calls block: memory threads, any of them; one lock orders them. The copiers are the lane's: they
// are used only while memory of this GPU is pinned by what they copy, so their streams stay.
// Outlives all that it hands out.
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
  int ordinal = 0;   // the driver's, in this process
  std::string uuid;  // 16 bytes
  std::string name;  // "NVIDIA H200"
  uint64_t bytes = 0;
  std::string pci;       // "0000:19:00.0"
  int numa = -1;         // the node it is nearest to; -1: not known
  int major = 0;         // of its compute capability
  std::string driver;    // what CUDA its driver is of: "CUDA 13.0"
  std::string unusable;  // why there can be no arenas on it; empty: there can
  // "GPU-01234567-89ab-cdef-0123-456789abcdef", as nvidia-smi says it.
  std::string uuid_text() const;
};

// What a lane copies: each has streams of its own, so that none waits for another's steps.
enum class CopyUse : uint8_t {
  kTransfers,
  kPrepared,  // goes before the others
  kStageOut,  // to host memory, for who sends it on
  kStageIn,
};

// The GPUs that this process can see. UNAVAILABLE/NOT_READY if there can be none, and why.
absl::StatusOr<std::vector<GpuInfo>> FindGpus(const std::string& library);

class CudaDevice {
 public:
  // `team`: all GPUs of this daemon, by ordinal, itself among them: who can gets access to memory
  // that is mapped here. `library` was opened by FindGpus. `nvml` may be null and outlives this: it
  // says what is free while there is no context, and which GPUs NVLink joins with this one.
  CudaDevice(const std::string& library, GpuInfo info, std::vector<int> team,
             const Nvml* nvml = nullptr);
  ~CudaDevice();

  const GpuInfo& info() const { return info_; }

  // Allocates (kCudaAllocate), imports (kCudaVmm) or opens (kCudaIpc). `ours`: the memory must be
  // this GPU's; else any GPU's that can be reached. Takes the descriptors either way.
  // RESOURCE_EXHAUSTED/DEVICE_MEMORY with what was asked for and what is free,
  // INVALID_ARGUMENT/FIELD_INVALID, FAILED_PRECONDITION/NOT_READY (released),
  // UNAVAILABLE/NOT_READY.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Map(const MemoryShare& share,
                                                    std::vector<UniqueFd> fds, bool ours = true);
  // Registers host memory, so that copies of it need no staging, which would hold the lane.
  absl::StatusOr<std::unique_ptr<MemoryPin>> Pin(const DeviceMemory& host, bool read_only);
  // Whether this GPU copies faster to and from the memory once Open was tried (CudaMemory says
  // why). Any thread.
  bool WantsOpening(const DeviceMemory& memory) const;
  absl::Status Open(const DeviceMemory& memory);
  // Where the memory begins for this GPU. Any thread.
  std::byte* AddressOf(const DeviceMemory& memory) const;
  // Whether this GPU's copy engine can touch the memory; why not, if it cannot. Any thread.
  absl::Status CanReach(const DeviceMemory& memory) const;
  // Whether kernels of it can as well.
  bool KernelsCanReach(const DeviceMemory& memory) const;
  // Whether it reaches memory of the driver's GPU `ordinal`; nothing if the driver does not say.
  // Any thread.
  std::optional<bool> HasPeerAccess(int ordinal) const;
  // Whether it is this GPU's own, or of one that NVML says it is joined with by NVLink. Any thread.
  bool IsNear(const DeviceMemory& memory) const;

  // Gives the GPU back: FAILED_PRECONDITION while something of it is in use. From then on it is not
  // used, until Reclaim.
  absl::Status Release();
  void Reclaim();
  struct Usage {
    bool context = false;
    bool released = false;
    uint64_t holds = 0;  // memories and pins
  };
  Usage usage() const;  // any thread, at once
  // Memory of the GPU that nobody has taken, as NVML says it, or else the driver while a context is
  // open; nothing if neither does.
  std::optional<uint64_t> FreeBytes();

  // For the lane. One of each. `sms_busy`, if given, is called on the lane when a kernel of the
  // copier came late: until when the SMs are taken to be busy (SmLoad).
  std::unique_ptr<Copier> MakeCopier(CopyUse use, std::function<void(absl::Time)> sms_busy = {});

  // Host memory of this device's own, registered whenever there is a context: copies of it hold
  // nobody up. Once, before anybody uses the device.
  absl::StatusOr<absl::Span<std::byte>> MakeStaging(size_t bytes);
  // For the lane, while it holds memory of this GPU: who asks CUDA which context is current (UCX)
  // finds this one.
  void MakeCurrent() const;

 private:
  friend class CudaMemory;
  friend class CudaPin;
  friend class CudaCopier;
  friend class CudaStream;

  // One more needs the context, which is current on this thread afterwards.
  absl::Status Hold();
  void Letgo();
  void FindNear();
  absl::Status OpenContext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For the copiers' engines; without it they go on by copy engine alone.
  void LoadGather() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RegisterStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseContext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Name() const;
  // The refusal of `bytes`: where the driver has no memory left, with what there is.
  absl::Status WithFree(const absl::Status& status, uint64_t bytes);

  const CudaApi& api_;
  const GpuInfo info_;
  const std::vector<int> team_;
  const Nvml* const nvml_;
  std::vector<int> near_;  // ordinals, its own among them; not changed any more
  Mutex mutex_;
  // Written under the lock.
  std::atomic<uint64_t> holds_{0};
  std::atomic<bool> released_{false};
  // Set while holds_ is not 0; read without the lock by those who hold.
  CUctx_st* context_ = nullptr;
  static constexpr size_t kCopyEngines = 4;                // by CopyUse
  std::unique_ptr<CudaEngine> engines_[kCopyEngines + 1];  // the last for memory's own
  absl::Span<std::byte> staging_;
  bool staging_registered_ = false;
};

}  // namespace ferry
