// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/cublaslt_products.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/cuda/cublaslt.h"

namespace ferry::compute {
namespace {

int LtTypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return cublaslt::kF32;
    case DType::kF64:
      return cublaslt::kF64;
    case DType::kF16:
      return cublaslt::kF16;
    case DType::kBF16:
      return cublaslt::kBF16;
    case DType::kF8E4M3FN:
      return cublaslt::kF8E4M3;
    case DType::kF8E5M2:
      return cublaslt::kF8E5M2;
    case DType::kF4E2M1FN:
      return cublaslt::kF4E2M1;
    default:
      return -1;
  }
}

// A matrix as the library has it: columns one after the other.
struct LtMatrix {
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t stride = 0;  // from column to column
  bool transposed = false;
};

// A factor of `outer` by `inner` rows and columns, to be `outer` by `inner` after what `transposed`
// says is done.
LtMatrix LtMatrixOf(const GpuMatrix& matrix, int64_t outer, int64_t inner) {
  const auto rows = static_cast<uint64_t>(outer);
  const auto columns = static_cast<uint64_t>(inner);
  if (matrix.column_stride == 1) return {columns, rows, matrix.row_stride, true};
  return {rows, columns, matrix.column_stride, false};
}

std::string TextOf(const GpuMatrix& matrix) {
  return absl::StrCat(NameOf(matrix.type), " of strides (", matrix.batch_stride, ",",
                      matrix.row_stride, ",", matrix.column_stride, "), aligned to ",
                      matrix.alignment);
}

std::string TextOf(const GpuProduct& product) {
  return absl::StrCat(
      "multiply ", product.batches, " x [", product.m, ",", product.k, "] by [", product.k, ",",
      product.n, "], ", TextOf(product.left), " by ", TextOf(product.right), " to ",
      TextOf(product.result), ", sums of ", NameOf(product.compute),
      product.block == 0 ? ""
                         : absl::StrCat(", scales of ", NameOf(product.left.scale_type),
                                        " for blocks of ", product.block),
      product.factors ? ", times a number" : "", ", workspace ", product.workspace_bytes);
}

constexpr char kWhatToDo[] =
    "; name another library in devices.cublaslt_library, or 'none' to multiply without one";

absl::Status WithAdvice(const absl::Status& status) {
  return status.ok() ? status : WithText(status, absl::StrCat(status.message(), kWhatToDo));
}

}  // namespace

struct CublasLtProducts::Prepared {
  explicit Prepared(const CublasLtApi& api) : api(api) {}
  ~Prepared() {
    if (product != nullptr) api.cublasLtMatmulDescDestroy(product);
    for (void* const layout : {left, right, result}) {
      if (layout != nullptr) api.cublasLtMatrixLayoutDestroy(layout);
    }
  }

  const CublasLtApi& api;
  void* product = nullptr;
  // Results are rows one after the other, so for the library they are transposed, and the right
  // factor is its A.
  void* left = nullptr;
  void* right = nullptr;
  void* result = nullptr;
  cublaslt::Choice choice = {};
};

CublasLtProducts::CublasLtProducts(const CublasLtApi& api) : api_(api) {}

absl::StatusOr<std::unique_ptr<CublasLtProducts>> CublasLtProducts::Make(
    const CublasLtLibrary& library) {
  ASSIGN_OR_RETURN(const CublasLtApi* api, library.Get());
  std::unique_ptr<CublasLtProducts> made(new CublasLtProducts(*api));
  if (const int status = api->cublasLtCreate(&made->handle_); status != cublaslt::kSuccess) {
    made->handle_ = nullptr;
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("open cuBLASLt ", api->version,
                              " on a GPU: ", api->cublasLtGetStatusName(status), kWhatToDo));
  }
  return made;
}

CublasLtProducts::~CublasLtProducts() {
  prepared_.clear();
  if (handle_ != nullptr) api_.cublasLtDestroy(handle_);
}

CublasLtProducts::Key CublasLtProducts::KeyOf(const GpuProduct& product) {
  Key key = {product.batches,
             product.m,
             product.n,
             product.k,
             static_cast<int64_t>(product.compute),
             static_cast<int64_t>(product.workspace_bytes),
             product.block,
             static_cast<int64_t>(product.left.scale_type),
             static_cast<int64_t>(product.right.scale_type),
             product.factors ? 1 : 0};
  size_t at = 10;
  for (const GpuMatrix* matrix : {&product.left, &product.right, &product.result}) {
    key[at++] = static_cast<int64_t>(matrix->type) << 32 | matrix->alignment;
    key[at++] = matrix->batch_stride;
    key[at++] = matrix->row_stride;
    key[at++] = matrix->column_stride;
  }
  return key;
}

absl::Status CublasLtProducts::Check(int status, const GpuProduct& product,
                                     const char* doing) const {
  if (status == cublaslt::kSuccess) return absl::OkStatus();
  // A library that is too old for scales does not know their attributes.
  const bool lacks =
      status == cublaslt::kNotSupported || (product.block > 0 && status == cublaslt::kInvalidValue);
  return Error(lacks ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInternal,
               lacks ? Reason::kFieldInvalid : Reason::kInternal,
               absl::StrCat(TextOf(product), ": ", doing, " by cuBLASLt ", api_.version, ": ",
                            api_.cublasLtGetStatusName(status)));
}

void CublasLtProducts::DescribeScales(const GpuProduct& product, Prepared& made,
                                      int& status) const {
  const auto set = [&](int attribute, int32_t value) {
    if (status != cublaslt::kSuccess) return;
    status = api_.cublasLtMatmulDescSetAttribute(made.product, attribute, &value, sizeof(value));
  };
  if (product.factors) set(cublaslt::kPointerMode, cublaslt::kOnDevice);
  if (product.block == 0) return;
  const auto mode = [](const GpuMatrix& factor) {
    return factor.scale_type == DType::kF8E8M0FNU ? cublaslt::kScaleOf32 : cublaslt::kScaleOf16;
  };
  set(cublaslt::kScaleModeA, mode(product.right));
  set(cublaslt::kScaleModeB, mode(product.left));
  if (status != cublaslt::kSuccess) return;
  // Nobody looks there before the product is queued, but a product without scales is another one.
  const auto* const somewhere = reinterpret_cast<const std::byte*>(kTemporaryAlignment);
  Memory memory;
  memory.left_scales = somewhere;
  memory.right_scales = somewhere;
  status = PointToScales(memory, made);
}

int CublasLtProducts::PointToScales(const Memory& memory, const Prepared& made) const {
  const void* const right = memory.right_scales;
  const void* const left = memory.left_scales;
  const int status =
      api_.cublasLtMatmulDescSetAttribute(made.product, cublaslt::kScalesA, &right, sizeof(right));
  if (status != cublaslt::kSuccess) return status;
  return api_.cublasLtMatmulDescSetAttribute(made.product, cublaslt::kScalesB, &left, sizeof(left));
}

absl::Status CublasLtProducts::Describe(const GpuProduct& product, Prepared& made) const {
  const bool wide = product.compute == DType::kF64;
  int status = api_.cublasLtMatmulDescCreate(&made.product,
                                             wide ? cublaslt::kComputeF64 : cublaslt::kComputeF32,
                                             wide ? cublaslt::kF64 : cublaslt::kF32);
  const auto set = [&](auto* function, void* of, int attribute, auto value) {
    if (status == cublaslt::kSuccess) status = function(of, attribute, &value, sizeof(value));
  };
  const auto layout = [&](const GpuMatrix& matrix, const LtMatrix& as, void** to) {
    if (status != cublaslt::kSuccess) return;
    status =
        api_.cublasLtMatrixLayoutCreate(to, LtTypeOf(matrix.type), as.rows, as.columns, as.stride);
    if (product.batches == 1) return;
    set(api_.cublasLtMatrixLayoutSetAttribute, *to, cublaslt::kBatchCount,
        static_cast<int32_t>(product.batches));
    set(api_.cublasLtMatrixLayoutSetAttribute, *to, cublaslt::kBatchStride, matrix.batch_stride);
  };
  const LtMatrix right = LtMatrixOf(product.right, product.n, product.k);
  const LtMatrix left = LtMatrixOf(product.left, product.m, product.k);
  layout(product.right, right, &made.right);
  layout(product.left, left, &made.left);
  layout(product.result,
         {static_cast<uint64_t>(product.n), static_cast<uint64_t>(product.m),
          product.result.row_stride, false},
         &made.result);
  // A is n x k, B is k x m.
  set(api_.cublasLtMatmulDescSetAttribute, made.product, cublaslt::kTransposeA,
      static_cast<int32_t>(right.transposed));
  set(api_.cublasLtMatmulDescSetAttribute, made.product, cublaslt::kTransposeB,
      static_cast<int32_t>(!left.transposed));
  DescribeScales(product, made, status);
  return Check(status, product, "describe it");
}

absl::Status CublasLtProducts::Choose(const GpuProduct& product, Prepared& made) const {
  void* preference = nullptr;
  int status = api_.cublasLtMatmulPreferenceCreate(&preference);
  const auto set = [&](int attribute, auto value) {
    if (status != cublaslt::kSuccess) return;
    status =
        api_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
  };
  set(cublaslt::kMaxWorkspaceBytes, product.workspace_bytes);
  set(cublaslt::kReductionSchemeMask, cublaslt::kReduceComputeType);
  set(cublaslt::kMinAlignmentA, product.right.alignment);
  set(cublaslt::kMinAlignmentB, product.left.alignment);
  set(cublaslt::kMinAlignmentC, product.result.alignment);
  set(cublaslt::kMinAlignmentD, product.result.alignment);
  int found = 0;
  if (status == cublaslt::kSuccess) {
    status = api_.cublasLtMatmulAlgoGetHeuristic(handle_, made.product, made.right, made.left,
                                                 made.result, made.result, preference, 1,
                                                 &made.choice, &found);
  }
  if (preference != nullptr) api_.cublasLtMatmulPreferenceDestroy(preference);
  if (status == cublaslt::kSuccess && found == 0) status = cublaslt::kNotSupported;
  if (status == cublaslt::kSuccess) status = made.choice.status;
  return Check(status, product, "find out how");
}

absl::StatusOr<const CublasLtProducts::Prepared*> CublasLtProducts::Prepare(
    const GpuProduct& product) {
  home_.Check();
  const Key key = KeyOf(product);
  if (const auto known = prepared_.find(key); known != prepared_.end()) return known->second.get();
  if (prepared_.size() >= kMostKept) prepared_.clear();
  auto fresh = std::make_unique<Prepared>(api_);
  RETURN_IF_ERROR(Describe(product, *fresh));
  RETURN_IF_ERROR(Choose(product, *fresh));
  return (prepared_[key] = std::move(fresh)).get();
}

absl::Status CublasLtProducts::Queue(const GpuProduct& product, const Memory& memory,
                                     void* stream) {
  const absl::StatusOr<const Prepared*> prepared = Prepare(product);
  if (!prepared.ok()) return WithAdvice(prepared.status());
  const Prepared* const made = *prepared;
  const bool wide = product.compute == DType::kF64;
  const float narrow_factors[] = {1, product.adds ? 1.0f : 0.0f};
  const double wide_factors[] = {1, product.adds ? 1.0 : 0.0};
  const void* alpha = wide ? static_cast<const void*>(&wide_factors[0]) : &narrow_factors[0];
  const void* beta = wide ? static_cast<const void*>(&wide_factors[1]) : &narrow_factors[1];
  if (product.factors) {
    alpha = memory.factors;
    beta = memory.factors + (product.adds ? 2 : 1) * sizeof(float);
  }
  int status = product.block == 0 ? cublaslt::kSuccess : PointToScales(memory, *made);
  if (status != cublaslt::kSuccess) return WithAdvice(Check(status, product, "give it scales"));
  status = api_.cublasLtMatmul(handle_, made->product, alpha, memory.right, made->right,
                               memory.left, made->left, beta, memory.result, made->result,
                               memory.result, made->result, made->choice.algorithm,
                               memory.workspace, product.workspace_bytes, stream);
  return WithAdvice(Check(status, product, "queue it"));
}

}  // namespace ferry::compute
