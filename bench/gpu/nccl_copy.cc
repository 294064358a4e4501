// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/nccl_copy.h"

#include <stdlib.h>

#include <algorithm>
#include <thread>

#include "base/status.h"
#include "bench/gpu/peer_copy.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {

absl::StatusOr<const NcclApi*> OwnNccl() {
  const char* const library = getenv("FERRY_NCCL_LIBRARY");
  return LoadNccl(library == nullptr ? "" : library, {});
}

NcclCopy::~NcclCopy() {
  for (int i = 0; i < 2; ++i) {
    driver_->cuCtxSetCurrent(driver_->context(i));
    if (comm_[i] != nullptr) nccl_->CommAbort(comm_[i]);
    if (stream_[i] != nullptr) driver_->cuStreamDestroy(stream_[i]);
    if (memory_[i] != 0) driver_->cuMemFree(memory_[i]);
  }
}

absl::Status NcclCopy::Make(int max_ctas, uint64_t bytes) {
  const auto checked = [&](ncclResult_t result, const char* doing) {
    return result == kNcclSuccess ? absl::OkStatus() : NcclError(*nccl_, result, doing);
  };
  ncclUniqueId id;
  RETURN_IF_ERROR(checked(nccl_->GetUniqueId(&id), "make an id"));
  for (int i = 0; i < 2; ++i) {
    driver_->cuCtxSetCurrent(driver_->context(i));
    RETURN_IF_ERROR(FromCuda(*driver_, driver_->cuMemAlloc(&memory_[i], bytes), "allocate"));
    RETURN_IF_ERROR(FromCuda(*driver_, driver_->cuStreamCreate(&stream_[i], CU_STREAM_NON_BLOCKING),
                             "make a stream"));
  }
  ncclResult_t opened[2] = {};
  const auto open = [&](int rank) {
    ncclConfig_t config = BlockingConfig(max_ctas);
    driver_->cuCtxSetCurrent(driver_->context(rank));
    opened[rank] = nccl_->CommInitRankConfig(&comm_[rank], 2, id, rank, &config);
  };
  std::thread other([&] { open(1); });
  open(0);
  other.join();
  return checked(std::max(opened[0], opened[1]), "open a communicator");
}

absl::StatusOr<absl::Duration> NcclCopy::Copy(uint64_t count, uint64_t bytes, uint64_t together) {
  const int64_t start = tools::MonotonicNanoseconds();
  ncclResult_t result = kNcclSuccess;
  for (uint64_t first = 0; first < count; first += together) {
    nccl_->GroupStart();
    for (uint64_t i = first; i < std::min(first + together, count); ++i) {
      for (int rank = 0; rank < 2; ++rank) {
        driver_->cuCtxSetCurrent(driver_->context(rank));
        void* const at = reinterpret_cast<void*>(memory_[rank] + i * bytes);
        result = std::max(
            result, rank == 0 ? nccl_->Send(at, bytes, kNcclBytes, 1, comm_[rank], stream_[rank])
                              : nccl_->Recv(at, bytes, kNcclBytes, 0, comm_[rank], stream_[rank]));
      }
    }
    result = std::max(result, nccl_->GroupEnd());
  }
  if (result != kNcclSuccess) return NcclError(*nccl_, result, "send and receive");
  for (int rank = 0; rank < 2; ++rank) {
    driver_->cuCtxSetCurrent(driver_->context(rank));
    RETURN_IF_ERROR(AwaitStream(*driver_, stream_[rank], "await NCCL"));
  }
  return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
}

}  // namespace ferry::bench
