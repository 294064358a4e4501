// SPDX-License-Identifier: Apache-2.0
// A stream of a GPU's context with the events of what is under way on it. Made and destroyed with
// the context, used by one thread at a time.
#pragma once

#include <memory>

#include "device/cuda/cuda_api.h"

namespace ferry {

struct CudaEngine {
  static constexpr size_t kSteps = 4;

  // In the current context.
  static absl::StatusOr<std::unique_ptr<CudaEngine>> Make(const CudaApi& api, int priority);
  ~CudaEngine();

  const CudaApi* api = nullptr;
  CUstream stream = nullptr;
  CUevent events[kSteps] = {};
};

}  // namespace ferry
