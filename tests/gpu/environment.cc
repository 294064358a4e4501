// SPDX-License-Identifier: Apache-2.0
// Before main: where this program was built, tests use the fake driver, so that they are the same
// on every machine. Elsewhere (in a bundle), or where FERRY_CUDA_LIBRARY says so, they use the real
// one.
#include <stdlib.h>
#include <unistd.h>

#include <string>

namespace {

int Set() {
  if (getenv("FERRY_CUDA_LIBRARY") == nullptr && access(FAKE_CUDA_LIBRARY, R_OK) == 0) {
    setenv("FERRY_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 0);
    setenv("FERRY_NVML_LIBRARY", FAKE_CUDA_LIBRARY, 0);
    setenv("FERRY_NCCL_LIBRARY", FAKE_NCCL_LIBRARY, 0);
    setenv("FERRY_CUBLASLT_LIBRARY", FAKE_CUBLASLT_LIBRARY, 0);
  }
  // GPUs of this test's own: daemons lock them by UUID, and tests run side by side.
  const std::string settings = "devices=4;memory_mib=2048;seed=" + std::to_string(getpid());
  return setenv("FERRY_FAKE_CUDA", settings.c_str(), 0);
}
[[maybe_unused]] const int kSet = Set();

}  // namespace
