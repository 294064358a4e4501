// SPDX-License-Identifier: Apache-2.0
// C++17 over ferry_cuda.h: the application's GPU memory as arenas, and its streams, which store
// 'defined' and wait for 'over'. Header only; needs no header of CUDA (a Stream is a CUstream or a
// cudaStream_t). ferry_cuda.h says what the calls mean.
//
//   auto send = session.Send(gpu, {transfer});          // to be defined at counter 3, value 7
//   Produce<<<grid, block, 0, stream>>>(...);
//   ferry::cuda::Define(session, stream, 3, 7);         // when the kernel is done
//   ferry::cuda::Wait(*receive, stream);                // goes on when the bytes are there
//   Consume<<<grid, block, 0, stream>>>(...);
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/ferry.hpp"
#include "ferry/ferry_cuda.h"

namespace ferry::cuda {

using Stream = ferry_cuda_stream;

// An arena of the application's device memory: see ferry_arena_import_cuda.
inline Result<Arena> ImportArena(Session& session, uint64_t device, void* pointer, uint64_t bytes) {
  ferry_arena* arena = nullptr;
  Status status(ferry_arena_import_cuda(session.get(), device, pointer, bytes, &arena));
  if (!status.ok()) return Result<Arena>(std::move(status));
  return Arena(arena);
}

// A VMM allocation by its descriptor, which stays the caller's, and its length.
struct Segment {
  int fd = -1;
  uint64_t bytes = 0;
};
inline Result<Arena> ImportArena(Session& session, uint64_t device,
                                 const std::vector<Segment>& segments) {
  std::vector<int> fds;
  std::vector<uint64_t> bytes;
  for (const Segment& segment : segments) {
    fds.push_back(segment.fd);
    bytes.push_back(segment.bytes);
  }
  ferry_arena* arena = nullptr;
  Status status(ferry_arena_import_cuda_fds(session.get(), device, fds.data(), bytes.data(),
                                            fds.size(), &arena));
  if (!status.ok()) return Result<Arena>(std::move(status));
  return Arena(arena);
}

// The kind of memory, FERRY_MEMORY_..., and the GPU's ordinal in this process (-1: host memory).
inline int Memory(const Arena& arena) { return ferry_arena_memory(arena.get()); }
inline int Device(const Arena& arena) { return ferry_arena_cuda_device(arena.get()); }

inline Status Define(Session& session, Stream stream, uint32_t timeline, uint64_t value) {
  return Status(ferry_stream_define(session.get(), stream, timeline, value));
}
inline Status WaitOver(Session& session, Stream stream, uint32_t timeline, uint64_t value) {
  return Status(ferry_stream_wait_over(session.get(), stream, timeline, value));
}
inline Status Wait(Batch& batch, Stream stream) {
  return Status(ferry_stream_wait_batch(batch.get(), stream));
}
inline Status Fire(Prepared& prepared, Stream stream, uint64_t* firing = nullptr) {
  return Status(ferry_stream_fire(prepared.get(), stream, firing));
}
inline Status Wait(Prepared& prepared, Stream stream, uint64_t firing) {
  return Status(ferry_stream_wait_prepared(prepared.get(), stream, firing));
}
// Waits for the last firing that was asked for at this end.
inline Status Wait(Prepared& prepared, Stream stream) {
  return Wait(prepared, stream, prepared.fired());
}

inline ferry_stream_counts Counts() { return ferry_stream_get_counts(); }

}  // namespace ferry::cuda
