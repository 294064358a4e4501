// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU as this process sees it: allocations that came as descriptors, mapped; pointers
// of the application, taken apart into what can be shown to the daemon; and copies to and from
// them. Pure functions over CUDA (client/cuda_api.h), whose types stay out of this header. Any
// thread; they block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/status.h"

namespace ferry::client {

// One VMM allocation. The descriptor belongs to whoever has the struct; -1: not kept.
struct CudaSegment {
  int fd = -1;
  uint64_t bytes = 0;
};

// The ordinal of the GPU with this UUID in this process.
StatusPtr FindCudaDevice(const std::string& uuid, const std::string& doing, int* device);

// Maps the segments one behind the other and makes them accessible to `device`.
StatusPtr MapSegments(int device, const std::vector<CudaSegment>& segments,
                      const std::string& doing, uint64_t* address);
// What MapSegments has mapped. Nothing that still runs may touch it.
void UnmapSegments(uint64_t address, const std::vector<CudaSegment>& segments);

// What the memory at a device pointer is to another process.
struct CudaPointer {
  std::vector<CudaSegment> segments;  // VMM; empty: legacy
  std::string ipc_handle;             // legacy
  uint64_t ipc_offset = 0;
};
// `bytes` from `pointer` must be on `device`. A VMM pointer must be where a mapping begins.
StatusPtr DescribePointer(int device, const void* pointer, uint64_t bytes, const std::string& doing,
                          CudaPointer* described);

// Done when they return, and in no order with streams.
StatusPtr CopyToDevice(int device, uint64_t to, const void* from, uint64_t bytes,
                       const std::string& doing);
StatusPtr CopyFromDevice(int device, void* to, uint64_t from, uint64_t bytes,
                         const std::string& doing);
// Waits for all that runs on the device, as cudaFree does.
StatusPtr SynchronizeDevice(int device, const std::string& doing);

}  // namespace ferry::client
