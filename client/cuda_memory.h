// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs in this process: maps allocations that came as descriptors; takes a pointer of the
// application apart into what the daemon can be shown; copies to and from device memory. Pure
// functions over CUDA (client/cuda_api.h), whose types stay out of this header. Any thread; they
// block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/status.h"

namespace ferry::client {

// One VMM allocation. Whoever has the struct owns the descriptor; -1: it was not kept.
struct CudaSegment {
  int fd = -1;
  uint64_t bytes = 0;
};

// The ordinal in this process of the GPU with this UUID.
StatusPtr FindCudaDevice(const std::string& uuid, const std::string& doing, int* device);

// Maps the segments one behind the other and makes them accessible to `device`.
StatusPtr MapSegments(int device, const std::vector<CudaSegment>& segments,
                      const std::string& doing, uint64_t* address);
// Unmaps what MapSegments has mapped. Nothing that still runs may touch it.
void UnmapSegments(uint64_t address, const std::vector<CudaSegment>& segments);

// The memory at a device pointer, as another process can open it: VMM segments, or an IPC handle.
struct CudaPointer {
  std::vector<CudaSegment> segments;  // VMM allocations; empty: cudaMalloc's memory
  std::string ipc_handle;             // of cudaMalloc's memory
  uint64_t ipc_offset = 0;            // of the pointer from the start of that allocation
};
// `bytes` from `pointer` must be on `device`. A VMM pointer must be where a mapping begins.
StatusPtr DescribePointer(int device, const void* pointer, uint64_t bytes, const std::string& doing,
                          CudaPointer* described);

// Both return when the copy is done, and keep no order with streams.
StatusPtr CopyToDevice(int device, uint64_t to, const void* from, uint64_t bytes,
                       const std::string& doing);
StatusPtr CopyFromDevice(int device, void* to, uint64_t from, uint64_t bytes,
                         const std::string& doing);
// Waits for all that runs on the device, as cudaFree does.
StatusPtr SynchronizeDevice(int device, const std::string& doing);

}  // namespace ferry::client
