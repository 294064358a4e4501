// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_kernel.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/cuda/cuda_api.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"

namespace ferry {

absl::StatusOr<std::unique_ptr<CudaKernel>> CudaKernel::Load(const CudaStream& stream,
                                                             const std::string& image,
                                                             const char* entry) {
  const CudaApi& api = stream.api();
  stream.MakeCurrent();
  std::unique_ptr<CudaKernel> kernel(new CudaKernel(api));
  RETURN_IF_CUDA(api, api.cuModuleLoadData(&kernel->module_, image.data()),
                 absl::StrCat("load a kernel of ", image.size(), " bytes"));
  RETURN_IF_CUDA(api, api.cuModuleGetFunction(&kernel->function_, kernel->module_, entry),
                 absl::StrCat("find the kernel ", entry));
  kernel->AskForShared(stream.device_.info().ordinal);
  return kernel;
}

void CudaKernel::AskForShared(int ordinal) {
  int most = 0;
  const auto has = [&](CUdevice_attribute attribute, int& value) {
    return api_.cuDeviceGetAttribute(&value, attribute, ordinal) == CUDA_SUCCESS;
  };
  if (!has(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, of_multiprocessor_) ||
      !has(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, of_block_) ||
      !has(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, most) ||
      api_.cuFuncGetAttribute(&own_, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function_) !=
          CUDA_SUCCESS) {
    return;
  }
  most -= own_;
  if (api_.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most) ==
      CUDA_SUCCESS) {
    most_ = most;
  }
}

uint32_t CudaKernel::SharedBesideCopies(uint32_t threads) const {
  const int blocks = static_cast<int>(std::max(kThreadsBesideCopies / threads, 1u));
  // One block more has no room.
  const int of_each = (of_multiprocessor_ / blocks - of_block_) / 128 * 128;
  return static_cast<uint32_t>(std::clamp(of_each - own_, 0, most_));
}

CudaKernel::~CudaKernel() {
  if (module_ != nullptr) api_.cuModuleUnload(module_);
}

}  // namespace ferry
