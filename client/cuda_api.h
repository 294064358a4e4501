// SPDX-License-Identifier: Apache-2.0
// CUDA's driver, opened at run time: libferry links none of it, and needs it for GPUs only. The
// functions keep their names, with versions as cuda.h says, so that a call here reads like any
// other. One a process, never closed; any thread. Included by .cc files only.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "client/status.h"

namespace ferry::client {

#define FERRY_CUDA_FUNCTIONS(X)     \
  X(cuInit)                         \
  X(cuGetErrorName)                 \
  X(cuGetErrorString)               \
  X(cuDeviceGetCount)               \
  X(cuDeviceGet)                    \
  X(cuDeviceGetUuid)                \
  X(cuDeviceGetAttribute)           \
  X(cuDevicePrimaryCtxRetain)       \
  X(cuCtxPushCurrent)               \
  X(cuCtxPopCurrent)                \
  X(cuCtxGetCurrent)                \
  X(cuCtxGetDevice)                 \
  X(cuCtxSynchronize)               \
  X(cuMemGetInfo)                   \
  X(cuMemGetAllocationGranularity)  \
  X(cuMemImportFromShareableHandle) \
  X(cuMemExportToShareableHandle)   \
  X(cuMemRetainAllocationHandle)    \
  X(cuMemRelease)                   \
  X(cuMemAddressReserve)            \
  X(cuMemAddressFree)               \
  X(cuMemMap)                       \
  X(cuMemUnmap)                     \
  X(cuMemSetAccess)                 \
  X(cuMemGetAddressRange)           \
  X(cuPointerGetAttribute)          \
  X(cuIpcGetMemHandle)              \
  X(cuMemcpyHtoDAsync)              \
  X(cuMemcpyDtoHAsync)              \
  X(cuMemHostRegister)              \
  X(cuMemHostUnregister)            \
  X(cuMemHostGetDevicePointer)      \
  X(cuStreamCreate)                 \
  X(cuStreamDestroy)                \
  X(cuStreamSynchronize)            \
  X(cuStreamGetCtx)                 \
  X(cuStreamIsCapturing)            \
  X(cuStreamWriteValue64)           \
  X(cuStreamWaitValue64)

class Cuda {
 public:
#define FERRY_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  FERRY_CUDA_FUNCTIONS(FERRY_CUDA_MEMBER)
#undef FERRY_CUDA_MEMBER

  // The process's driver, opened by the first call; else why there is none.
  static StatusPtr Get(Cuda** cuda);

  // Null for CUDA_SUCCESS, else "doing: cuMemMap: CUDA_ERROR_INVALID_VALUE (invalid argument)". If
  // memory is missing the text adds how much is free in the current context, if there is one.
  StatusPtr Check(CUresult result, const std::string& doing, const char* function) const;

  // The ordinal of the device with this UUID (16 bytes), if this process sees it.
  StatusPtr FindDevice(const std::string& uuid, const std::string& doing, int* device) const;
  const std::string& uuid(int device) const { return uuids_[static_cast<size_t>(device)]; }
  int devices() const { return static_cast<int>(uuids_.size()); }
  // Flags for a stream of the device that waits for a word. They make what an adapter wrote into
  // the GPU's memory before it set the word visible to what follows the wait.
  unsigned wait_flags(int device) const { return wait_flags_[static_cast<size_t>(device)]; }
  // The device's primary context, which the process keeps from the first call on.
  StatusPtr PrimaryContext(int device, const std::string& doing, CUcontext* context);

 private:
  StatusPtr Open();
  std::string FreeText() const;

  std::string library_;
  std::vector<std::string> uuids_;    // by ordinal
  std::vector<unsigned> wait_flags_;  // by ordinal

  std::mutex mutex_;  // guards what follows
  std::map<int, CUcontext> contexts_;
};

// Makes `context` current on this thread while the object lives. If `context` is null or destroyed,
// the current context stays as it is.
class CurrentContext {
 public:
  CurrentContext(Cuda* cuda, CUcontext context)
      : cuda_(cuda),
        // What was not pushed must not be popped: it would be the application's.
        pushed_(context != nullptr && cuda->cuCtxPushCurrent(context) == CUDA_SUCCESS) {}
  ~CurrentContext() {
    CUcontext popped;
    if (pushed_) cuda_->cuCtxPopCurrent(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  Cuda* const cuda_;
  const bool pushed_;
};

#define FERRY_CLIENT_CUDA(cuda, doing, function, ...) \
  FERRY_CLIENT_RETURN_IF_ERROR((cuda)->Check((cuda)->function(__VA_ARGS__), doing, #function))

}  // namespace ferry::client
