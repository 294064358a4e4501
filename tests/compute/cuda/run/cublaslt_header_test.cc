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
static_assert(cublaslt::kInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
static_assert(cublaslt::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(cublaslt::kF32 == CUDA_R_32F && cublaslt::kF64 == CUDA_R_64F);
static_assert(cublaslt::kF16 == CUDA_R_16F && cublaslt::kBF16 == CUDA_R_16BF);
#if CUBLAS_VERSION >= 120800
static_assert(cublaslt::kF8E4M3 == CUDA_R_8F_E4M3 && cublaslt::kF8E5M2 == CUDA_R_8F_E5M2);
static_assert(cublaslt::kF4E2M1 == CUDA_R_4F_E2M1);
static_assert(cublaslt::kScaleModeA == CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
static_assert(cublaslt::kScaleModeB == CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
static_assert(cublaslt::kScaleOf16 == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3);
static_assert(cublaslt::kScaleOf32 == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0);
#endif
static_assert(cublaslt::kScalesA == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
static_assert(cublaslt::kScalesB == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
static_assert(cublaslt::kPointerMode == CUBLASLT_MATMUL_DESC_POINTER_MODE);
static_assert(cublaslt::kOnDevice == CUBLASLT_POINTER_MODE_DEVICE);
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
