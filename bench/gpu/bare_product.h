// SPDX-License-Identifier: Apache-2.0
// Products of matrices by cuBLASLt called as it is, on GPU 0 of this process: with the library's
// own defaults, its first choice, and 32 MiB of workspace. One thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compute/cuda/cublaslt.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// [size, size] by [size, size]: rows of the left factor by rows of the right one (`rows`), or by
// its columns.
struct SquareProduct {
  int64_t size = 0;
  int from = 0;  // cudaDataType of the factors, of 16 or 32 bits
  int to = 0;
  bool rows = false;

  uint64_t factor_bytes() const { return BytesOf(from); }
  uint64_t result_bytes() const { return BytesOf(to); }

 private:
  uint64_t BytesOf(int type) const {
    return static_cast<uint64_t>(size * size) * (type == compute::cublaslt::kF32 ? 4 : 2);
  }
};

class BareProduct {
 public:
  explicit BareProduct(const testing::GpuDriver& driver) : driver_(driver) {}
  ~BareProduct();
  BareProduct(const BareProduct&) = delete;
  BareProduct& operator=(const BareProduct&) = delete;

  // Both factors are `factor`, factor_bytes() long. UNAVAILABLE if there is no library
  // (FERRY_CUBLASLT_LIBRARY, or the newest that CUDA has installed).
  absl::Status Make(const SquareProduct& product, const std::vector<char>& factor);
  // So many products, one behind the other.
  absl::StatusOr<absl::Duration> Multiply(int count);

 private:
  absl::Status Describe(const SquareProduct& product);

  const testing::GpuDriver& driver_;
  const compute::CublasLtApi* api_ = nullptr;
  void* handle_ = nullptr;
  void* product_ = nullptr;
  void* right_ = nullptr;  // the library's A: results are rows for us, columns for it
  void* left_ = nullptr;
  void* result_ = nullptr;
  compute::cublaslt::Choice choice_ = {};
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;  // left, right, result, workspace
  uint64_t factor_bytes_ = 0;
  uint64_t result_bytes_ = 0;
};

}  // namespace ferry::bench
