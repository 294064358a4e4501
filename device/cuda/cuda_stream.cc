// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "device/cuda/cuda_api.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_gather.h"

namespace ferry {

struct CudaStream::Parts {
  explicit Parts(const CudaApi& api) : api(api) {}
  ~Parts() {
    if (stream != nullptr) api.cuStreamSynchronize(stream);
    for (const CUevent event : events) {
      if (event != nullptr) api.cuEventDestroy(event);
    }
    if (stream != nullptr) api.cuStreamDestroy(stream);
  }

  const CudaApi& api;
  CUstream stream = nullptr;
  CUevent events[kMarks] = {};
  std::unique_ptr<CudaGather> gather;  // a table for each mark
};

CudaStream::CudaStream(CudaDevice& device)
    : device_(device), parts_(std::make_unique<Parts>(device.api_)) {}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Make(CudaDevice& device, Options options) {
  const std::string doing = absl::StrCat("make a stream on ", device.info().uuid_text());
  const CudaApi& api = device.api_;
  std::unique_ptr<CudaStream> made(new CudaStream(device));
  ASSIGN_OR_RETURN(made->staging_,
                   device.Map({MemoryKind::kCudaAllocate, options.staging_bytes}, {}));
  device.MakeCurrent();
  Parts& parts = *made->parts_;
  int least = 0, greatest = 0;
  RETURN_IF_CUDA(api, api.cuCtxGetStreamPriorityRange(&least, &greatest), doing);
  RETURN_IF_CUDA(
      api, api.cuStreamCreateWithPriority(&parts.stream, CU_STREAM_NON_BLOCKING, greatest), doing);
  for (CUevent& event : parts.events) {
    RETURN_IF_CUDA(api, api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), doing);
  }
  if (!options.kernel) return made;
  absl::StatusOr<std::unique_ptr<CudaGather>> gather =
      CudaGather::Make(api, kMarks, kPieces + made->staging_->bytes() / CudaGather::kTaskBytes + 1);
  if (gather.ok()) {
    parts.gather = *std::move(gather);
  } else {
    FERRY_LOG(warn, "gpu.gather", LogFields("uuid", device.info().uuid_text()),
              "small pieces are copied one by one: {}", std::string(gather.status().message()));
  }
  return made;
}

CudaStream::~CudaStream() {
  if (staging_ == nullptr) return;
  MakeCurrent();
  parts_.reset();  // before the context may go
}

void CudaStream::MakeCurrent() const { device_.MakeCurrent(); }

void* CudaStream::handle() const { return parts_->stream; }

absl::Status CudaStream::Copy(absl::Span<const CopyPiece> pieces) {
  FERRY_CHECK(room() && pieces.size() <= kPieces);
  const CudaApi& api = parts_->api;
  if (parts_->gather != nullptr) {
    RETURN_IF_ERROR(parts_->gather->Launch(parts_->stream, marked_ % kMarks, pieces));
    return Mark();
  }
  for (const CopyPiece& piece : pieces) {
    RETURN_IF_CUDA(
        api,
        api.cuMemcpyAsync(reinterpret_cast<uintptr_t>(piece.destination),
                          reinterpret_cast<uintptr_t>(piece.source), piece.size, parts_->stream),
        absl::StrCat("copy ", pieces.size(), " pieces"));
  }
  return Mark();
}

absl::Status CudaStream::Zero(std::byte* begin, size_t bytes) {
  RETURN_IF_CUDA(
      parts_->api,
      parts_->api.cuMemsetD8Async(reinterpret_cast<uintptr_t>(begin), 0, bytes, parts_->stream),
      absl::StrCat("clear ", bytes, " bytes"));
  return absl::OkStatus();
}

absl::Status CudaStream::Mark() {
  FERRY_CHECK(room());
  RETURN_IF_CUDA(parts_->api,
                 parts_->api.cuEventRecord(parts_->events[marked_ % kMarks], parts_->stream),
                 "mark a stream");
  ++marked_;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CudaStream::Reached() {
  for (; reached_ < marked_; ++reached_) {
    const CUresult result = parts_->api.cuEventQuery(parts_->events[reached_ % kMarks]);
    if (result == CUDA_ERROR_NOT_READY) break;
    RETURN_IF_CUDA(parts_->api, result, "look at a mark of a stream");
  }
  return reached_;
}

absl::Status CudaStream::Await() {
  RETURN_IF_CUDA(parts_->api, parts_->api.cuStreamSynchronize(parts_->stream), "await a stream");
  return absl::OkStatus();
}

uint64_t CudaStream::FreeBytes() const {
  size_t free = 0, total = 0;
  return parts_->api.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : 0;
}

}  // namespace ferry
