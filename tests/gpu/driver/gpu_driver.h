// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as a user's program has it, for tests and benches: the real driver, or the fake
// that FERRY_CUDA_LIBRARY names. One in a process; constant once opened; any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/nvml.h"

namespace ferry::testing {

#define FERRY_GPU_DRIVER_FUNCTIONS(X) \
  X(cuInit)                           \
  X(cuGetErrorName)                   \
  X(cuDeviceGetCount)                 \
  X(cuDeviceGet)                      \
  X(cuDeviceGetName)                  \
  X(cuDeviceGetUuid)                  \
  X(cuDevicePrimaryCtxRetain)         \
  X(cuCtxSetCurrent)                  \
  X(cuCtxSynchronize)                 \
  X(cuMemGetInfo)                     \
  X(cuMemAlloc)                       \
  X(cuMemFree)                        \
  X(cuMemHostAlloc)                   \
  X(cuMemFreeHost)                    \
  X(cuMemcpyHtoDAsync)                \
  X(cuMemcpyDtoHAsync)                \
  X(cuMemcpyPeerAsync)                \
  X(cuMemsetD8Async)                  \
  X(cuStreamCreate)                   \
  X(cuStreamDestroy)                  \
  X(cuStreamSynchronize)              \
  X(cuStreamQuery)                    \
  X(cuStreamBeginCapture)             \
  X(cuStreamEndCapture)               \
  X(cuLaunchHostFunc)                 \
  X(cuMemCreate)                      \
  X(cuMemRelease)                     \
  X(cuMemExportToShareableHandle)     \
  X(cuMemAddressReserve)              \
  X(cuMemAddressFree)                 \
  X(cuMemMap)                         \
  X(cuMemUnmap)                       \
  X(cuMemSetAccess)                   \
  X(cuCtxEnablePeerAccess)

class GpuDriver {
 public:
#define FERRY_GPU_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
  FERRY_GPU_DRIVER_FUNCTIONS(FERRY_GPU_DRIVER_MEMBER)
#undef FERRY_GPU_DRIVER_MEMBER

  // Null if there is no driver; then `why` says why.
  static const GpuDriver* Get(std::string* why);

  // Any other function of the library; null if it has none of this name.
  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(FindSymbol(name));
  }

  int devices() const { return static_cast<int>(contexts_.size()); }
  // The context of a device, kept as long as the process, with access to the other devices' memory.
  CUcontext context(int device) const { return contexts_[static_cast<size_t>(device)]; }
  std::string device_name(int device) const;
  std::string Name(CUresult result) const;
  // Free memory of the device by NVML; by the driver where NVML does not say (there is none in the
  // container, or for a MIG instance). The fake counts only this process.
  uint64_t FreeBytes(int device) const;

 private:
  std::string Open();  // "", or what is missing
  void* FindSymbol(const char* name) const;

  void* library_ = nullptr;
  std::vector<CUcontext> contexts_;
  std::vector<std::string> uuids_;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace ferry::testing
