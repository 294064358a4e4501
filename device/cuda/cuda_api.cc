// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "device/cuda/loss_story.h"

namespace ferry {
namespace {

// Descriptors of memory, UUIDs of MIG instances, and what else is called above.
constexpr int kOldest = 12000;

absl::Status Unavailable(const std::string& library, absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
               absl::StrCat("open ", library, ": ", why));
}

#define FERRY_CUDA_TEXT_INNER(name) #name
#define FERRY_CUDA_TEXT(name) FERRY_CUDA_TEXT_INNER(name)

absl::StatusOr<CudaApi> Open(const std::string& path) {
  // Never closed: the driver has threads and process-wide state of its own.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(path, absl::StripPrefix(dlerror(), absl::StrCat(path, ": ")));
  }
  CudaApi api;
#define FERRY_CUDA_LOAD(name)                                                             \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, FERRY_CUDA_TEXT(name))); \
  if (api.name == nullptr) {                                                              \
    return Unavailable(path, absl::StrCat("it has no ", FERRY_CUDA_TEXT(name),            \
                                          "; a driver of CUDA 12.0 or later is needed")); \
  }
  FERRY_CUDA_FUNCTIONS(FERRY_CUDA_LOAD)
#undef FERRY_CUDA_LOAD
  api.cuMemcpyBatchAsync = reinterpret_cast<decltype(api.cuMemcpyBatchAsync)>(
      dlsym(library, FERRY_CUDA_TEXT(cuMemcpyBatchAsync)));
  if (const CUresult got = api.cuDriverGetVersion(&api.version); got != CUDA_SUCCESS) {
    return Unavailable(path, CudaErrorText(api, got));
  }
  if (api.version < kOldest) {
    return Unavailable(path, absl::StrCat("the driver is of ", CudaVersionText(api.version),
                                          ", 12.0 or later is needed"));
  }
  if (const CUresult got = api.cuInit(0); got != CUDA_SUCCESS) {
    return Unavailable(path, absl::StrCat("cuInit: ", CudaErrorText(api, got)));
  }
  return api;
}

// Whether an error of a kernel has ended the contexts of the process.
bool IsFault(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
      return true;
    default:
      return false;
  }
}

// After these nothing of the process's contexts works any more: faults, and errors of hardware or
// of the driver, which come whatever runs.
bool IsSticky(CUresult result) {
  if (IsFault(result)) return true;
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void EndProcess(absl::string_view doing, const std::string& what, bool fault) {
  FlightRecorder::Get().Record("cuda.lost", 0, 0, 0, what);
  const std::string story =
      LossStory::All({absl::StrCat(doing, ": ", what), fault, LossStory::gpu_of_thread()});
  FERRY_LOG(err, "daemon.cuda_lost", "{}: {}: the GPUs of this process are lost, it ends{}",
            std::string(doing), what, story);
  fprintf(stderr,
          "ferry: %s: %s: the GPUs of this process are lost%s\nflight recorder, oldest first:\n%s",
          std::string(doing).c_str(), what.c_str(), story.c_str(),
          FlightRecorder::Get().Dump().c_str());
  fflush(stderr);
  abort();
}

}  // namespace

absl::StatusOr<const CudaApi*> LoadCuda(const std::string& library) {
  static Mutex& mutex = *new Mutex();
  static auto& loaded = *new std::map<std::string, std::unique_ptr<CudaApi>>();
  MutexLock lock(mutex);
  std::unique_ptr<CudaApi>& api = loaded[library];
  if (api == nullptr) {
    ASSIGN_OR_RETURN(CudaApi opened, Open(library));
    api = std::make_unique<CudaApi>(opened);
  }
  return api.get();
}

std::string CudaVersionText(int version) {
  return absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

std::string CudaErrorText(const CudaApi& api, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return absl::StrCat("CUDA error ", static_cast<int>(result));
  }
  api.cuGetErrorString(result, &text);
  return absl::StrCat(name, " (", text == nullptr ? "" : text, ")");
}

absl::Status CudaError(const CudaApi& api, CUresult result, absl::string_view doing) {
  const std::string what = CudaErrorText(api, result);
  if (IsSticky(result)) EndProcess(doing, what, IsFault(result));
  const std::string text = absl::StrCat(doing, ": ", what);
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory, text);
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrCat(text,
                                "; the GPU is in exclusive-process mode and another process has "
                                "it (use the default mode or MPS), or in prohibited mode"));
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_SUPPORTED:
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, text);
    default:
      return Error(absl::StatusCode::kInternal, Reason::kInternal, text);
  }
}

}  // namespace ferry
