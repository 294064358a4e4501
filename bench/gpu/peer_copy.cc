// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/peer_copy.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {

absl::Status FromCuda(const testing::GpuDriver& driver, CUresult result, const char* doing) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat(doing, ": ", driver.Name(result)));
}

absl::Status AwaitStream(const testing::GpuDriver& driver, CUstream stream, const char* doing) {
  constexpr int64_t kPatienceNs = int64_t{60} * 1'000'000'000;
  const int64_t begin = tools::MonotonicNanoseconds();
  CUresult result;
  while ((result = driver.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
    if (tools::MonotonicNanoseconds() - begin > kPatienceNs) {
      return Error(absl::StatusCode::kDeadlineExceeded, Reason::kInternal,
                   absl::StrCat(doing, ": it is not over after 60 s"));
    }
  }
  return FromCuda(driver, result, doing);
}

PeerCopy::~PeerCopy() {
  for (int i = 0; i < 2; ++i) {
    driver_->cuCtxSetCurrent(driver_->context(i));
    if (stream_[i] != nullptr) driver_->cuStreamDestroy(stream_[i]);
    if (memory_[i] != 0) driver_->cuMemFree(memory_[i]);
  }
}

absl::Status PeerCopy::Make() {
  for (int i = 0; i < 2; ++i) {
    driver_->cuCtxSetCurrent(driver_->context(i));
    RETURN_IF_ERROR(FromCuda(*driver_, driver_->cuMemAlloc(&memory_[i], 2 * bytes_), "allocate"));
    RETURN_IF_ERROR(FromCuda(*driver_, driver_->cuStreamCreate(&stream_[i], CU_STREAM_NON_BLOCKING),
                             "make a stream"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> PeerCopy::Copy(bool both, int times) {
  const int64_t start = tools::MonotonicNanoseconds();
  for (int i = 0; i < times; ++i) {
    for (int from = 0; from < (both ? 2 : 1); ++from) {
      const int to = 1 - from;
      driver_->cuCtxSetCurrent(driver_->context(from));
      RETURN_IF_ERROR(FromCuda(
          *driver_,
          driver_->cuMemcpyPeerAsync(memory_[to] + (from == 0 ? bytes_ : 0), driver_->context(to),
                                     memory_[from] + (from == 0 ? 0 : bytes_),
                                     driver_->context(from), bytes_, stream_[from]),
          "copy from GPU to GPU"));
    }
  }
  for (int from = 0; from < (both ? 2 : 1); ++from) {
    driver_->cuCtxSetCurrent(driver_->context(from));
    RETURN_IF_ERROR(AwaitStream(*driver_, stream_[from], "await the copy"));
  }
  return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
}

}  // namespace ferry::bench
