// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_kernel.h"

#include "absl/strings/str_cat.h"
#include "device/cuda/cuda_api.h"
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
  return kernel;
}

CudaKernel::~CudaKernel() {
  if (module_ != nullptr) api_.cuModuleUnload(module_);
}

}  // namespace ferry
