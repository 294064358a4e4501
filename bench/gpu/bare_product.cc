// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/bare_product.h"

#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/gpu/peer_copy.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {
namespace {

namespace lt = compute::cublaslt;

constexpr uint64_t kWorkspace = uint64_t{32} << 20;

}  // namespace

BareProduct::~BareProduct() {
  driver_.cuCtxSetCurrent(driver_.context(0));
  if (api_ != nullptr) {
    if (product_ != nullptr) api_->cublasLtMatmulDescDestroy(product_);
    for (void* const layout : {right_, left_, result_}) {
      if (layout != nullptr) api_->cublasLtMatrixLayoutDestroy(layout);
    }
    if (handle_ != nullptr) api_->cublasLtDestroy(handle_);
  }
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  if (memory_ != 0) driver_.cuMemFree(memory_);
}

absl::Status BareProduct::Describe(const SquareProduct& product) {
  const auto size = static_cast<uint64_t>(product.size);
  const int32_t transposed = product.rows ? 1 : 0;
  void* preference = nullptr;
  int found = 0;
  int status = api_->cublasLtCreate(&handle_);
  const auto next = [&](auto call) {
    if (status == lt::kSuccess) status = call();
  };
  next([&] { return api_->cublasLtMatmulDescCreate(&product_, lt::kComputeF32, lt::kF32); });
  next([&] {
    return api_->cublasLtMatmulDescSetAttribute(product_, lt::kTransposeA, &transposed,
                                                sizeof(transposed));
  });
  for (const auto& [layout, type] :
       {std::pair(&right_, product.from), {&left_, product.from}, {&result_, product.to}}) {
    next([&, to = layout, of = type] {
      return api_->cublasLtMatrixLayoutCreate(to, of, size, size, product.size);
    });
  }
  next([&] { return api_->cublasLtMatmulPreferenceCreate(&preference); });
  next([&] {
    return api_->cublasLtMatmulPreferenceSetAttribute(preference, lt::kMaxWorkspaceBytes,
                                                      &kWorkspace, sizeof(kWorkspace));
  });
  next([&] {
    return api_->cublasLtMatmulAlgoGetHeuristic(handle_, product_, right_, left_, result_, result_,
                                                preference, 1, &choice_, &found);
  });
  if (preference != nullptr) api_->cublasLtMatmulPreferenceDestroy(preference);
  if (status == lt::kSuccess && found == 1) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat("prepare a product by cuBLASLt ", api_->version, ": ",
                            api_->cublasLtGetStatusName(status)));
}

absl::Status BareProduct::Make(const SquareProduct& product, const std::vector<char>& factor) {
  driver_.cuCtxSetCurrent(driver_.context(0));
  int version = 0;
  RETURN_IF_ERROR(
      FromCuda(driver_, driver_.Find<decltype(&cuDriverGetVersion)>("cuDriverGetVersion")(&version),
               "ask for the driver's version"));
  const char* const named = getenv("FERRY_CUBLASLT_LIBRARY");
  ASSIGN_OR_RETURN(api_, compute::LoadCublasLt(named == nullptr ? "" : named, version));
  factor_bytes_ = product.factor_bytes();
  result_bytes_ = product.result_bytes();
  RETURN_IF_ERROR(FromCuda(
      driver_, driver_.cuMemAlloc(&memory_, 2 * factor_bytes_ + result_bytes_ + kWorkspace),
      "allocate"));
  RETURN_IF_ERROR(
      FromCuda(driver_, driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "make a stream"));
  for (const uint64_t at : {uint64_t{0}, factor_bytes_}) {
    RETURN_IF_ERROR(FromCuda(
        driver_, driver_.cuMemcpyHtoDAsync(memory_ + at, factor.data(), factor_bytes_, stream_),
        "fill"));
  }
  RETURN_IF_ERROR(AwaitStream(driver_, stream_, "await the factors"));
  return Describe(product);
}

absl::StatusOr<absl::Duration> BareProduct::Multiply(int count) {
  driver_.cuCtxSetCurrent(driver_.context(0));
  const float one = 1;
  const float zero = 0;
  const auto at = [&](uint64_t offset) { return reinterpret_cast<void*>(memory_ + offset); };
  void* const result = at(2 * factor_bytes_);
  const int64_t start = tools::MonotonicNanoseconds();
  for (int i = 0; i < count; ++i) {
    const int status =
        api_->cublasLtMatmul(handle_, product_, &one, at(factor_bytes_), right_, at(0), left_,
                             &zero, result, result_, result, result_, choice_.algorithm,
                             at(2 * factor_bytes_ + result_bytes_), kWorkspace, stream_);
    if (status != lt::kSuccess) {
      return Error(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat("multiply by cuBLASLt: ", api_->cublasLtGetStatusName(status)));
    }
  }
  RETURN_IF_ERROR(AwaitStream(driver_, stream_, "await the products"));
  return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
}

}  // namespace ferry::bench
