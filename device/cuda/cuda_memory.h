// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs mapped into this process: VMM allocations of ours or of others (a descriptor each,
// mapped one behind the other in one range of addresses), or the memory of a legacy IPC handle.
// Made by CudaDevice. Home: as CudaDevice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "base/mutex.h"
#include "device/cuda/cuda_api.h"
#include "device/cuda/cuda_device.h"

namespace ferry {

class CudaMemory : public DeviceMemory {
 public:
  // The device's context must be held and current. The memory takes over that hold: it lets go of
  // the context when it is destroyed, and also if Make() fails.
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Make(CudaDevice& device,
                                                            const MemoryShare& share,
                                                            std::vector<UniqueFd> fds, bool ours);
  ~CudaMemory() override;
  MemoryShare share() const override { return share_; }
  std::vector<int> fds() const override;
  // Ordinal of the GPU whose memory it is.
  int owner() const { return owner_; }
  // Whether the copy engine of GPU `ordinal` may touch this memory.
  bool ReachedBy(int ordinal) const;
  // Whether kernels of GPU `ordinal` may touch it too. A legacy handle: only of GPUs for which it
  // is open.
  bool KernelsReachIt(int ordinal) const;

  // Whether OpenFor() should be tried for GPU `ordinal`. A legacy handle is open in the context of
  // one GPU. For another GPU the driver copies by way of the host, at a tenth of NVLink's
  // bandwidth, whatever access the contexts have to each other. So the handle is opened for that
  // GPU as well, which sees the memory at another address. Any thread.
  bool WantsOpening(int ordinal) const;
  // Opens the handle for `other`; tried once for each GPU. If it fails the memory is as it was. For
  // a memory thread.
  absl::Status OpenFor(CudaDevice& other) const;
  // The memory's address for GPU `ordinal`.
  std::byte* AddressFor(int ordinal) const;

 private:
  explicit CudaMemory(CudaDevice& device) : device_(device) {}
  absl::Status Allocate(uint64_t bytes);
  absl::Status Import(const MemoryShare& share, std::vector<UniqueFd> fds, bool ours);
  absl::Status OpenIpc(const MemoryShare& share, bool ours);
  // Opens the legacy handle in the context of `device`, which must be current.
  static absl::Status OpenHandle(const CudaDevice& device, const MemoryShare& share,
                                 CUdeviceptr* base);
  // Maps the handles one behind the other, with access for every GPU of the team that can have it.
  absl::Status MapHandles(const std::string& doing);
  absl::Status CheckOwner(int ordinal, bool ours) const;

  CudaDevice& device_;
  MemoryShare share_;
  std::vector<UniqueFd> fds_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  int owner_ = -1;      // ordinal of the GPU whose memory it is
  size_t mapped_ = 0;   // handles that are mapped
  uint64_t range_ = 0;  // bytes of the address range
  CUdeviceptr address_ = 0;
  absl::InlinedVector<int, 8> reached_by_;

  // Another GPU for which the legacy handle was opened, and whose context is held. `base` 0: the
  // opening failed, and nothing is held.
  struct Opening {
    CudaDevice* device = nullptr;
    CUdeviceptr base = 0;
  };
  const Opening* FindOpening(int ordinal) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  mutable absl::InlinedVector<Opening, 2> openings_ ABSL_GUARDED_BY(mutex_);
};

// Host memory that is registered with a GPU; destroying it unregisters the memory.
class CudaRegistration : public MemoryRegistration {
 public:
  CudaRegistration(CudaDevice& device, std::byte* data) : device_(device), data_(data) {}
  ~CudaRegistration() override;

 private:
  CudaDevice& device_;
  std::byte* const data_;
};

}  // namespace ferry
