// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/bare_program.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {

std::optional<CudaStart> StartCuda(int device) {
  const char* const named = getenv("FERRY_CUDA_LIBRARY");
  const int64_t start = tools::MonotonicNanoseconds();
  void* const library = dlopen(named == nullptr ? "libcuda.so.1" : named, RTLD_NOW);
  if (library == nullptr) return std::nullopt;
  const auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(library, "cuInit"));
  const auto get = reinterpret_cast<decltype(&cuDeviceGet)>(dlsym(library, "cuDeviceGet"));
  const auto retain = reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(
      dlsym(library, "cuDevicePrimaryCtxRetain"));
  if (init == nullptr || get == nullptr || retain == nullptr) return std::nullopt;
  if (init(0) != CUDA_SUCCESS) return std::nullopt;
  const int64_t initialized = tools::MonotonicNanoseconds();
  CUdevice handle;
  CUcontext context;
  if (get(&handle, device) != CUDA_SUCCESS || retain(&context, handle) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return CudaStart{absl::Nanoseconds(initialized - start),
                   absl::Nanoseconds(tools::MonotonicNanoseconds() - initialized)};
}

absl::StatusOr<BareProgram> BareProgram::Start(const std::string& self, int device) {
  CudaStart times;
  ASSIGN_OR_RETURN(Reporter process,
                   Reporter::Start({self, "bare-program", absl::StrCat(device)},
                                   "open a context of a GPU", &times, sizeof(times)));
  return BareProgram(std::move(process), times);
}

int RunBareProgram(int device, int socket) {
  const std::optional<CudaStart> times = StartCuda(device);
  return times ? WriteReport(socket, &*times, sizeof(*times)) : 1;
}

}  // namespace ferry::bench
