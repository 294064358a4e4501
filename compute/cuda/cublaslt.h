// SPDX-License-Identifier: Apache-2.0
// The vendor table of cuBLASLt, NVIDIA's library of matrix products, found at run time: a machine
// without it multiplies by our own kernels and says why. Types, values and signatures are those of
// NVIDIA's headers of cuBLASLt, which are the same in CUDA 12 and 13; a machine with only the
// driver lacks them. Constant after LoadCublasLt(); any thread. Only .cc files of this folder, of
// run/ and of tests include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ferry::compute {

namespace cublaslt {

inline constexpr int kSuccess = 0;       // cublasStatus_t
inline constexpr int kInvalidValue = 7;  // also for attributes that an older library does not know
inline constexpr int kNotSupported = 15;
// cudaDataType_t
inline constexpr int kF32 = 0;
inline constexpr int kF64 = 1;
inline constexpr int kF16 = 2;
inline constexpr int kBF16 = 14;
inline constexpr int kF8E4M3 = 28;
inline constexpr int kF8E5M2 = 29;
inline constexpr int kF4E2M1 = 33;
// cublasComputeType_t. kComputeF32 makes no TF32 of f32: CUBLAS_COMPUTE_32F_FAST_TF32 (77) would.
inline constexpr int kComputeF32 = 68;
inline constexpr int kComputeF64 = 70;
// cublasLtMatmulDescAttributes_t, each an i32 but for the pointers.
inline constexpr int kPointerMode = 2;  // a cublasLtPointerMode_t: where alpha and beta are
inline constexpr int kTransposeA = 3;   // a cublasOperation_t, 0 as it is and 1 transposed
inline constexpr int kTransposeB = 4;
inline constexpr int kScalesA = 17;  // const void*, of the GPU
inline constexpr int kScalesB = 18;
inline constexpr int kScaleModeA = 31;  // a cublasLtMatmulMatrixScale_t; from CUDA 12.8 on
inline constexpr int kScaleModeB = 32;
// cublasLtPointerMode_t
inline constexpr int kOnDevice = 1;
// cublasLtMatmulMatrixScale_t: a scale for 16 elements of f4e2m1fn, or for 32 of 8 bits.
inline constexpr int kScaleOf16 = 1;
inline constexpr int kScaleOf32 = 2;
// cublasLtMatrixLayoutAttribute_t
inline constexpr int kBatchCount = 5;   // i32
inline constexpr int kBatchStride = 6;  // i64, in elements
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kMaxWorkspaceBytes = 1;    // u64
inline constexpr int kReductionSchemeMask = 3;  // u32: what partial sums may be
inline constexpr int kMinAlignmentA = 5;        // u32, in bytes; B, C and D follow
inline constexpr int kMinAlignmentB = 6;
inline constexpr int kMinAlignmentC = 7;
inline constexpr int kMinAlignmentD = 8;
// cublasLtReductionScheme_t: partial sums have the type in which sums are made, not the result's.
inline constexpr uint32_t kReduceComputeType = 2;

// cublasLtMatmulHeuristicResult_t
struct Choice {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Choice) == 96);

}  // namespace cublaslt

#define FERRY_CUBLASLT_FUNCTIONS(X)                                                            \
  X(cublasLtGetVersion, size_t (*)())                                                          \
  X(cublasLtGetCudartVersion, size_t (*)())                                                    \
  X(cublasLtGetStatusName, const char* (*)(int status))                                        \
  X(cublasLtCreate, int (*)(void** handle))                                                    \
  X(cublasLtDestroy, int (*)(void* handle))                                                    \
  X(cublasLtMatmulDescCreate, int (*)(void** made, int compute, int scale))                    \
  X(cublasLtMatmulDescDestroy, int (*)(void* made))                                            \
  X(cublasLtMatmulDescSetAttribute,                                                            \
    int (*)(void* made, int attribute, const void* value, size_t bytes))                       \
  X(cublasLtMatrixLayoutCreate,                                                                \
    int (*)(void** made, int type, uint64_t rows, uint64_t columns, int64_t stride))           \
  X(cublasLtMatrixLayoutDestroy, int (*)(void* made))                                          \
  X(cublasLtMatrixLayoutSetAttribute,                                                          \
    int (*)(void* made, int attribute, const void* value, size_t bytes))                       \
  X(cublasLtMatmulPreferenceCreate, int (*)(void** made))                                      \
  X(cublasLtMatmulPreferenceDestroy, int (*)(void* made))                                      \
  X(cublasLtMatmulPreferenceSetAttribute,                                                      \
    int (*)(void* made, int attribute, const void* value, size_t bytes))                       \
  X(cublasLtMatmulAlgoGetHeuristic,                                                            \
    int (*)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference, \
            int wanted, ::ferry::compute::cublaslt::Choice* choices, int* found))              \
  X(cublasLtMatmul,                                                                            \
    int (*)(void* handle, void* product, const void* alpha, const void* a, void* a_layout,     \
            const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,    \
            void* d, void* d_layout, const uint64_t* algorithm, void* workspace, size_t bytes, \
            void* stream))

struct CublasLtApi {
#define FERRY_CUBLASLT_MEMBER(name, ...) decltype(static_cast<__VA_ARGS__>(nullptr)) name = nullptr;
  FERRY_CUBLASLT_FUNCTIONS(FERRY_CUBLASLT_MEMBER)
#undef FERRY_CUBLASLT_MEMBER
  std::string version;  // "13.1.0"
};

// Opens `library`; if that is empty, the newest of those that CUDA installs and that works with a
// driver of CUDA version `driver`, such as 13000. UNAVAILABLE/NOT_READY says what is missing.
absl::StatusOr<const CublasLtApi*> LoadCublasLt(const std::string& library, int driver);

}  // namespace ferry::compute
