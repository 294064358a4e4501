// SPDX-License-Identifier: Apache-2.0
// What we declare of cuBLASLt is what NVIDIA's header says, where there is one.
#if __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "compute/cuda/cublaslt.h"

namespace ferry::compute {
namespace {

static_assert(cublaslt::kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(cublaslt::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(cublaslt::kF32 == CUDA_R_32F && cublaslt::kF64 == CUDA_R_64F);
static_assert(cublaslt::kF16 == CUDA_R_16F && cublaslt::kBF16 == CUDA_R_16BF);
static_assert(cublaslt::kComputeF32 == CUBLAS_COMPUTE_32F);
static_assert(cublaslt::kComputeF64 == CUBLAS_COMPUTE_64F);
static_assert(cublaslt::kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(cublaslt::kTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(cublaslt::kBatchCount == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
static_assert(cublaslt::kBatchStride == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(cublaslt::kMaxWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(cublaslt::kReductionSchemeMask == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(cublaslt::kMinAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(cublaslt::kMinAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(cublaslt::kMinAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(cublaslt::kMinAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(cublaslt::kReduceComputeType == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

using Theirs = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(cublaslt::Choice) == sizeof(Theirs));
static_assert(sizeof(cublaslt::Choice::algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(offsetof(cublaslt::Choice, workspace_bytes) == offsetof(Theirs, workspaceSize));
static_assert(offsetof(cublaslt::Choice, status) == offsetof(Theirs, state));

// How many parameters a function has.
template <typename Function>
struct Parameters;
template <typename Result, typename... Types>
struct Parameters<Result (*)(Types...)> {
  static constexpr size_t kCount = sizeof...(Types);
};

TEST(CublasLtHeaderTest, FunctionsTakeAsManyParameters) {
#define FERRY_CUBLASLT_COMPARE(name, ...)                    \
  EXPECT_EQ(Parameters<decltype(CublasLtApi::name)>::kCount, \
            Parameters<decltype(&::name)>::kCount)           \
      << #name;
  FERRY_CUBLASLT_FUNCTIONS(FERRY_CUBLASLT_COMPARE)
#undef FERRY_CUBLASLT_COMPARE
}

}  // namespace
}  // namespace ferry::compute

#endif
