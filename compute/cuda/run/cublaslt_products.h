// SPDX-License-Identifier: Apache-2.0
// A GPU's products by cuBLASLt. Each product that is new is prepared when it is first queued, or
// asked for: the library is asked once how it would be made, and takes its first choice from then
// on. So the same program gives the same bits again on the same GPU. Holds a handle of the library,
// which belongs to the GPU's context: the context is current in all calls, also in the destructor.
//
// Home: the thread that makes it: that which runs programs, or that which compiles them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/home.h"
#include "compute/cuda/cublaslt_library.h"
#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {

class CublasLtProducts {
 public:
  // The most products that are kept prepared. When there are more, all are prepared anew.
  static constexpr size_t kMostKept = 4096;

  // Memory of the GPU, aligned as the product's matrices say. `workspace`: as many bytes as the
  // product says, aligned to 256.
  struct Memory {
    const std::byte* left = nullptr;
    const std::byte* right = nullptr;
    std::byte* result = nullptr;
    std::byte* workspace = nullptr;
    // Where the product has a block: the scales of both factors, swizzled, aligned to 16.
    const std::byte* left_scales = nullptr;
    const std::byte* right_scales = nullptr;
    const std::byte* factors = nullptr;  // where the product has them; three f32
  };

  // UNAVAILABLE/NOT_READY if there is no library. INTERNAL if the library cannot work with the
  // current context.
  static absl::StatusOr<std::unique_ptr<CublasLtProducts>> Make(const CublasLtLibrary& library);
  ~CublasLtProducts();
  CublasLtProducts(const CublasLtProducts&) = delete;
  CublasLtProducts& operator=(const CublasLtProducts&) = delete;

  // All of a product but where its matrices are.
  using Key = std::array<int64_t, 24>;
  static Key KeyOf(const GpuProduct& product);

  // Prepares the product and queues nothing; where its matrices are does not matter.
  // UNIMPLEMENTED/FIELD_INVALID if the library has no such product for this GPU; INTERNAL if it
  // fails. Errors say the product's shape, types and strides.
  absl::Status Ask(const GpuProduct& product) { return Prepare(product).status(); }
  // Queues the product on `stream`, a CUstream. Errors: as Ask, with what to do.
  absl::Status Queue(const GpuProduct& product, const Memory& memory, void* stream);
  size_t prepared() const { return prepared_.size(); }

 private:
  struct Prepared;

  explicit CublasLtProducts(const CublasLtApi& api);
  absl::StatusOr<const Prepared*> Prepare(const GpuProduct& product);
  absl::Status Check(int status, const GpuProduct& product, const char* doing) const;
  absl::Status Describe(const GpuProduct& product, Prepared& made) const;
  // Sets what a product with scales has besides; `status`: of what was set so far.
  void DescribeScales(const GpuProduct& product, Prepared& made, int& status) const;
  // Has the library find the scales there.
  int PointToScales(const Memory& memory, const Prepared& made) const;
  absl::Status Choose(const GpuProduct& product, Prepared& made) const;

  const CublasLtApi& api_;
  void* handle_ = nullptr;
  absl::flat_hash_map<Key, std::unique_ptr<Prepared>> prepared_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry::compute
