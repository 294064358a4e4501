// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs mapped into this process: allocations of ours and of others (VMM, a descriptor
// each, one after another in one range of addresses), or a legacy IPC handle. Made by CudaDevice;
// home as there.
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
  // The device's context is held and current; the memory lets it go when it is destroyed, also when
  // making it fails.
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Make(CudaDevice& device,
                                                            const MemoryShare& share,
                                                            std::vector<UniqueFd> fds, bool ours);
  ~CudaMemory() override;
  MemoryShare share() const override { return share_; }
  std::vector<int> fds() const override;
  // The ordinal of the GPU whose memory it is.
  int owner() const { return owner_; }
  // Of the GPU by ordinal: its copy engine may touch this.
  bool ReachedBy(int ordinal) const;
  // And its kernels as well: those of the GPUs where a legacy handle is open.
  bool KernelsReachIt(int ordinal) const;

  // A legacy handle is open in the context of one GPU. Between it and a GPU where it is not, the
  // driver copies by way of the host, at a tenth of NVLink's bandwidth, whatever access their
  // contexts have to each other. So it is opened for that GPU as well, which sees the memory at
  // another address. Any thread asks.
  bool WantsOpening(int ordinal) const;
  // Tried once for each GPU; the memory is as it was if that fails. For a memory thread.
  absl::Status OpenFor(CudaDevice& other) const;
  // Where the memory begins for the GPU by ordinal.
  std::byte* AddressFor(int ordinal) const;

 private:
  explicit CudaMemory(CudaDevice& device) : device_(device) {}
  absl::Status Allocate(uint64_t bytes);
  absl::Status Import(const MemoryShare& share, std::vector<UniqueFd> fds, bool ours);
  absl::Status OpenIpc(const MemoryShare& share, bool ours);
  // Opens the legacy handle in the context of `device`, which is current.
  static absl::Status OpenHandle(const CudaDevice& device, const MemoryShare& share,
                                 CUdeviceptr* base);
  // Maps the handles one after another, with access for all of the team that can have it.
  absl::Status MapHandles(const std::string& doing);
  absl::Status CheckOwner(int ordinal, bool ours) const;

  CudaDevice& device_;
  MemoryShare share_;
  std::vector<UniqueFd> fds_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  int owner_ = -1;      // ordinal of the GPU whose memory it is
  size_t mapped_ = 0;   // handles that are
  uint64_t range_ = 0;  // bytes of addresses
  CUdeviceptr address_ = 0;
  absl::InlinedVector<int, 8> reached_by_;

  // Another GPU for which the legacy handle was opened: it is held. `base` is 0 if that failed, and
  // then nothing is held.
  struct Opening {
    CudaDevice* device = nullptr;
    CUdeviceptr base = 0;
  };
  const Opening* FindOpening(int ordinal) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  mutable absl::InlinedVector<Opening, 2> openings_ ABSL_GUARDED_BY(mutex_);
};

// Host memory that a GPU has registered.
class CudaPin : public MemoryPin {
 public:
  CudaPin(CudaDevice& device, std::byte* data) : device_(device), data_(data) {}
  ~CudaPin() override;

 private:
  CudaDevice& device_;
  std::byte* const data_;
};

}  // namespace ferry
