// SPDX-License-Identifier: Apache-2.0
// A kernel that is loaded into a GPU's context, from its machine code. Made, used and destroyed
// while something holds the context, by the thread that has it current (CudaStream::MakeCurrent).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct CUmod_st;
struct CUfunc_st;

namespace ferry {

struct CudaApi;
class CudaStream;

class CudaKernel {
 public:
  // Loads the kernel `entry` of `image` into the context of `stream`. INTERNAL if the image is not
  // one that this GPU runs, or has no such kernel.
  static absl::StatusOr<std::unique_ptr<CudaKernel>> Load(const CudaStream& stream,
                                                          const std::string& image,
                                                          const char* entry);
  ~CudaKernel();
  CudaKernel(const CudaKernel&) = delete;
  CudaKernel& operator=(const CudaKernel&) = delete;

 private:
  friend class CudaStream;
  explicit CudaKernel(const CudaApi& api) : api_(api) {}

  const CudaApi& api_;
  CUmod_st* module_ = nullptr;
  CUfunc_st* function_ = nullptr;
};

}  // namespace ferry
