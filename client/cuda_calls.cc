// SPDX-License-Identifier: Apache-2.0
// The C boundary of ferry/ferry_cuda.h.
#include <string>
#include <vector>

#include "client/api.h"
#include "client/batch.h"
#include "client/cuda_allocator.h"
#include "client/cuda_streams.h"
#include "client/parked_streams.h"
#include "client/prepared.h"

namespace ferry::client {
namespace {

thread_local StatusPtr last_allocation;

}  // namespace
}  // namespace ferry::client

extern "C" {

using namespace ferry::client;  // NOLINT: the functions below are the boundary itself

int ferry_arena_memory(const ferry_arena* arena) {
  return Usable(arena) ? static_cast<int>(arena->memory) : 0;
}
int ferry_arena_cuda_device(const ferry_arena* arena) {
  return Usable(arena) ? arena->cuda_device : -1;
}

ferry_status* ferry_arena_import_cuda(ferry_session* session, uint64_t device, void* pointer,
                                      uint64_t bytes, ferry_arena** arena) {
  FERRY_CLIENT_NEEDS(session);
  if (pointer == nullptr) {  // ferry/dlpack.hpp passes this for a tensor that libferry has not made
    StatusPtr error = BadArgument(__func__, "pointer", true);
    error->message +=
        ", not one to memory of a GPU. A tensor has one if it is in a CUDA GPU's own memory (not "
        "pinned or managed) and compact: copy it there, make it contiguous, or import the tensor "
        "that it is a view of and transfer strided ranges of that arena";
    return error.release();
  }
  FERRY_CLIENT_NEEDS(arena);
  return MakeArenaHandle(arena,
                         [&](std::unique_ptr<ferry_arena>* made) {
                           return OfField(InArguments(ImportCudaArena(Kept(session), device,
                                                                      pointer, bytes, made),
                                                      {{"device_id", "device"},
                                                       {"memory", "pointer"},
                                                       {"segment_bytes", "pointer"}}),
                                          "pointer");
                         })
      .release();
}

ferry_status* ferry_arena_import_cuda_fds(ferry_session* session, uint64_t device, const int* fds,
                                          const uint64_t* segment_bytes, size_t count,
                                          ferry_arena** arena) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(arena);
  if (count != 0) {
    FERRY_CLIENT_NEEDS(fds);
    FERRY_CLIENT_NEEDS(segment_bytes);
  }
  std::vector<CudaSegment> segments;
  for (size_t i = 0; i < count; ++i) segments.push_back({fds[i], segment_bytes[i]});
  return MakeArenaHandle(
             arena,
             [&](std::unique_ptr<ferry_arena>* made) {
               return OfField(
                   InArguments(
                       ImportCudaSegments(Kept(session), device, segments, made),
                       {{"device_id", "device"}, {"memory", "fds"}, {"bytes", "segment_bytes"}}),
                   "fds");
             })
      .release();
}

ferry_status* ferry_stream_define(ferry_session* session, ferry_cuda_stream stream,
                                  uint32_t timeline, uint64_t value) {
  FERRY_CLIENT_NEEDS(session);
  return OfField(DefineOnStream(*Kept(session), stream, timeline, value), "stream").release();
}

ferry_status* ferry_stream_wait_over(ferry_session* session, ferry_cuda_stream stream,
                                     uint32_t timeline, uint64_t value) {
  FERRY_CLIENT_NEEDS(session);
  return OfField(WaitOverOnStream(Kept(session), stream, timeline, value), "stream").release();
}

ferry_status* ferry_stream_wait_batch(ferry_batch* batch, ferry_cuda_stream stream) {
  FERRY_CLIENT_NEEDS(batch);
  return OfField(WaitOverOnStream(batch->session, stream, batch->timeline, batch->last_value()),
                 "stream")
      .release();
}

ferry_status* ferry_stream_fire(ferry_prepared* prepared, ferry_cuda_stream stream,
                                uint64_t* firing) {
  FERRY_CLIENT_NEEDS(prepared);
  return OfField(FireOnStream(prepared, stream, firing), "stream").release();
}

ferry_status* ferry_stream_wait_prepared(ferry_prepared* prepared, ferry_cuda_stream stream,
                                         uint64_t firing) {
  FERRY_CLIENT_NEEDS(prepared);
  return OfField(WaitPreparedOnStream(prepared, stream, firing), "stream").release();
}

ferry_stream_counts ferry_stream_get_counts(void) { return ParkedStreams::Get().Counts(); }

void* ferry_cuda_malloc(ssize_t size, int device, ferry_cuda_stream) {
  void* pointer = nullptr;
  last_allocation = nullptr;
  if (size < 0) {
    last_allocation = BadField("allocating on CUDA device " + std::to_string(device), "size",
                               "is " + std::to_string(size) + ", fewer than none");
  } else if (size > 0) {
    last_allocation = OfField(
        InArguments(CudaAllocator::Get().Allocate(static_cast<uint64_t>(size), device, &pointer),
                    {{"device_id", "device"}, {"memory", "device"}, {"bytes", "size"}}),
        "size");
  }
  return pointer;
}

void ferry_cuda_free(void* pointer, ssize_t, int, ferry_cuda_stream) {
  CudaAllocator::Get().Free(pointer);
}

ferry_status* ferry_cuda_malloc_status(void) { return Copy(last_allocation).release(); }

ferry_status* ferry_cuda_session(ferry_session** session) {
  FERRY_CLIENT_NEEDS(session);
  return CudaAllocator::Get().Session(session).release();
}

ferry_arena* ferry_cuda_arena(const void* pointer, uint64_t* offset) {
  return CudaAllocator::Get().Find(pointer, offset);
}

}  // extern "C"
