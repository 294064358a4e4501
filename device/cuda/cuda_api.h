// SPDX-License-Identifier: Apache-2.0
// The vendor table of CUDA's driver: the functions of libcuda that Ferry calls, found at run time,
// so that a machine without a driver has no GPUs and says why. Tests open a fake by its path.
// Constant after LoadCuda(); any thread. Only .cc files of this folder include it.
#pragma once

#include <cuda.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ferry {

#define FERRY_CUDA_FUNCTIONS(X)             \
  X(cuInit)                                 \
  X(cuDriverGetVersion)                     \
  X(cuGetErrorName)                         \
  X(cuGetErrorString)                       \
  X(cuDeviceGetCount)                       \
  X(cuDeviceGet)                            \
  X(cuDeviceGetName)                        \
  X(cuDeviceGetUuid)                        \
  X(cuDeviceGetAttribute)                   \
  X(cuDeviceTotalMem)                       \
  X(cuDeviceGetPCIBusId)                    \
  X(cuDeviceCanAccessPeer)                  \
  X(cuDevicePrimaryCtxRetain)               \
  X(cuDevicePrimaryCtxRelease)              \
  X(cuCtxSetCurrent)                        \
  X(cuCtxGetStreamPriorityRange)            \
  X(cuMemGetInfo)                           \
  X(cuMemGetAllocationGranularity)          \
  X(cuMemCreate)                            \
  X(cuMemRelease)                           \
  X(cuMemExportToShareableHandle)           \
  X(cuMemImportFromShareableHandle)         \
  X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemAddressReserve)                    \
  X(cuMemAddressFree)                       \
  X(cuMemMap)                               \
  X(cuMemUnmap)                             \
  X(cuMemSetAccess)                         \
  X(cuMemGetAddressRange)                   \
  X(cuIpcOpenMemHandle)                     \
  X(cuIpcCloseMemHandle)                    \
  X(cuMemHostRegister)                      \
  X(cuMemHostUnregister)                    \
  X(cuPointerGetAttribute)                  \
  X(cuMemcpyAsync)                          \
  X(cuMemsetD8Async)                        \
  X(cuMemsetD32Async)                       \
  X(cuStreamSynchronize)                    \
  X(cuStreamQuery)                          \
  X(cuStreamWriteValue64)                   \
  X(cuStreamWaitEvent)                      \
  X(cuStreamCreateWithPriority)             \
  X(cuStreamDestroy)                        \
  X(cuEventCreate)                          \
  X(cuEventDestroy)                         \
  X(cuEventRecord)                          \
  X(cuEventQuery)                           \
  X(cuEventSynchronize)                     \
  X(cuModuleLoadData)                       \
  X(cuModuleUnload)                         \
  X(cuModuleGetFunction)                    \
  X(cuFuncGetAttribute)                     \
  X(cuFuncSetAttribute)                     \
  X(cuLaunchKernel)                         \
  X(cuLaunchKernelEx)                       \
  X(cuMemHostAlloc)                         \
  X(cuMemFreeHost)                          \
  X(cuMemHostGetDevicePointer)

// These names are macros of cuda.h, which stand for the versions that it declares, here and in the
// library.
struct CudaApi {
#define FERRY_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  FERRY_CUDA_FUNCTIONS(FERRY_CUDA_MEMBER)
#undef FERRY_CUDA_MEMBER
  decltype(&::cuMemcpyBatchAsync) cuMemcpyBatchAsync = nullptr;  // null before driver 13.0
  int version = 0;                                               // 13000
};

// Opens and initialises the driver. UNAVAILABLE/NOT_READY says what is missing: the library, a
// function in it, a driver that is new enough, or a GPU.
absl::StatusOr<const CudaApi*> LoadCuda(const std::string& library);

// The status that `result` means, for a caller that was `doing` something. If the error means that
// the process's GPUs are lost, prints what was under way (LossStory) and the flight recorder, and
// ends the process: there is nothing to go on with.
absl::Status CudaError(const CudaApi& api, CUresult result, absl::string_view doing);
// The text of a version: 13000 gives "CUDA 13.0".
std::string CudaVersionText(int version);
// The text of an error: "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string CudaErrorText(const CudaApi& api, CUresult result);

}  // namespace ferry

#define RETURN_IF_CUDA(api, call, doing)                                      \
  do {                                                                        \
    if (const CUresult ferry_result = (call); ferry_result != CUDA_SUCCESS) { \
      return ::ferry::CudaError(api, ferry_result, doing);                    \
    }                                                                         \
  } while (false)
