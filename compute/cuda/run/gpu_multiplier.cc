// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/gpu_multiplier.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/cuda/cublaslt.h"
#include "compute/cuda/run/block_scale_check.h"

namespace ferry::compute {

absl::StatusOr<std::string> GpuMultiplier::Name() const {
  ASSIGN_OR_RETURN(const CublasLtApi* api, library_.Get());
  return absl::StrCat("cuBLASLt ", api->version);
}

absl::StatusOr<std::vector<absl::Status>> GpuMultiplier::Ask(
    absl::Span<const GpuProduct* const> products) {
  home_.Check();
  if (known_.size() + products.size() > kMostKept) known_.clear();
  std::vector<const GpuProduct*> unknown;
  for (const GpuProduct* product : products) {
    if (!known_.contains(CublasLtProducts::KeyOf(*product))) unknown.push_back(product);
  }
  if (!unknown.empty()) RETURN_IF_ERROR(Annotate(Learn(unknown), "ask how to multiply"));
  std::vector<absl::Status> answers;
  for (const GpuProduct* product : products) {
    answers.push_back(known_.at(CublasLtProducts::KeyOf(*product)));
  }
  return answers;
}

absl::StatusOr<GpuMultiplier::Opened> GpuMultiplier::Open() {
  constexpr uint64_t kAnyBytes = 256;
  Opened opened;
  ASSIGN_OR_RETURN(opened.held, device_.Map({MemoryKind::kCudaAllocate, kAnyBytes}, {}));
  device_.MakeCurrent();
  ASSIGN_OR_RETURN(opened.products, CublasLtProducts::Make(library_));
  return opened;
}

absl::Status GpuMultiplier::CheckBlocks() {
  home_.Check();
  if (blocks_) return *blocks_;
  absl::StatusOr<Opened> opened = Open();
  absl::Status status = opened.status();
  if (status.ok()) status = CheckBlockScales(device_, *opened->products);
  if (!status.ok() && status.code() != absl::StatusCode::kUnimplemented) {
    return Annotate(status, "try block scales");
  }
  blocks_ = status;
  return status;
}

absl::Status GpuMultiplier::Learn(absl::Span<const GpuProduct* const> products) {
  ASSIGN_OR_RETURN(const Opened opened, Open());
  for (const GpuProduct* product : products) {
    absl::Status answer = opened.products->Ask(*product);
    if (!answer.ok() && answer.code() != absl::StatusCode::kUnimplemented) return answer;
    known_[CublasLtProducts::KeyOf(*product)] = std::move(answer);
  }
  return absl::OkStatus();
}

}  // namespace ferry::compute
