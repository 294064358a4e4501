// SPDX-License-Identifier: Apache-2.0
// Two streams of a GPU's context and the events of what is under way on them. The streams take
// steps in turn, so that the start of one step hides behind the end of the other. Made and
// destroyed with the context; used by one thread at a time.
#pragma once

#include <memory>

#include "device/cuda/cuda_api.h"
#include "device/cuda/cuda_gather.h"

namespace ferry {

struct CudaEngine {
  // The most steps that its copier has under way, and the most pieces of one step.
  static constexpr size_t kSteps = 2;
  static constexpr size_t kPieces = size_t{16} << 10;

  // Makes the streams in the current context.
  static absl::StatusOr<std::unique_ptr<CudaEngine>> Make(const CudaApi& api, int priority);
  ~CudaEngine();

  const CudaApi* api = nullptr;
  CUstream streams[2] = {};  // step i is on stream i % 2
  CUevent events[kSteps] = {};
  std::unique_ptr<CudaGather> gather;  // null: this stream moves nothing by kernel
};

}  // namespace ferry
