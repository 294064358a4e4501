// SPDX-License-Identifier: Apache-2.0
// An allocator of arenas on GPUs: has one session of the process, and knows which arena is at which
// address. Any thread; one a process, never destroyed.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "client/include/ferry/ferry_cuda.h"
#include "client/status.h"

namespace ferry::client {

class CudaAllocator {
 public:
  static CudaAllocator& Get();

  StatusPtr Session(ferry_session** session);
  StatusPtr Allocate(uint64_t bytes, int device, void** pointer);
  void Free(void* pointer);
  ferry_arena* Find(const void* pointer, uint64_t* offset);

 private:
  std::mutex mutex_;  // guards what follows
  ferry_session* session_ = nullptr;
  std::map<uintptr_t, ferry_arena*> arenas_;  // by their first address
};

}  // namespace ferry::client
