// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt multiplies on one GPU. Programs are planned by its answers, so that no run meets a
// product that the library refuses. The library is asked once for each product, as long as no more
// than kMostKept are known, and tried once for block scales. The GPU's context is held only while
// the library is asked or tried.
//
// Home: the thread that compiles programs, which may block. GPU and library outlive the object.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "compute/cuda/cublaslt_library.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/cuda/run/cublaslt_products.h"
#include "device/cuda/cuda_device.h"
#include "device/memory.h"

namespace ferry::compute {

class GpuMultiplier {
 public:
  // The most products whose answers are kept. When there are more, all are asked for anew.
  static constexpr size_t kMostKept = 4096;

  GpuMultiplier(CudaDevice& device, const CublasLtLibrary& library)
      : device_(device), library_(library) {}

  // "cuBLASLt 13.1.0". UNAVAILABLE/NOT_READY if there is no library, with why.
  absl::StatusOr<std::string> Name() const;
  // By product: OK, or UNIMPLEMENTED/FIELD_INVALID if the library has no such product for this GPU,
  // with the product and what the library said. Where the products' matrices are does not matter.
  // Another error if the library cannot be asked now, such as for want of the GPU's memory; nothing
  // of that is kept.
  absl::StatusOr<std::vector<absl::Status>> Ask(absl::Span<const GpuProduct* const> products);
  // OK if the library multiplies blocks with scales on this GPU as docs/numerics.md says, by
  // CheckBlockScales, which the first call runs. Else UNIMPLEMENTED/FIELD_INVALID, with why.
  // Another error if it cannot be found out now; then the next call tries again.
  absl::Status CheckBlocks();

 private:
  // The library on this GPU, and what holds the context, which is current then.
  struct Opened {
    std::unique_ptr<DeviceMemory> held;
    std::unique_ptr<CublasLtProducts> products;
  };
  absl::StatusOr<Opened> Open();
  // Asks for those that are not known.
  absl::Status Learn(absl::Span<const GpuProduct* const> products);

  CudaDevice& device_;
  const CublasLtLibrary& library_;
  absl::flat_hash_map<CublasLtProducts::Key, absl::Status> known_;
  std::optional<absl::Status> blocks_;  // what CheckBlocks says
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry::compute
