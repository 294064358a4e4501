// SPDX-License-Identifier: Apache-2.0
#include "client/cuda_allocator.h"

#include <string>

#include "client/api.h"
#include "client/cuda_memory.h"

namespace ferry::client {

CudaAllocator& CudaAllocator::Get() {
  static CudaAllocator* const all = new CudaAllocator;
  return *all;
}

StatusPtr CudaAllocator::Session(ferry_session** session) {
  std::lock_guard lock(mutex_);
  if (!Usable(session_)) {  // there is none yet, or the application has closed it
    FERRY_CLIENT_RETURN_IF_ERROR(StatusPtr(ferry_session_open(nullptr, &session_)));
  }
  *session = session_;
  return nullptr;
}

StatusPtr CudaAllocator::Allocate(uint64_t bytes, int device, void** pointer) {
  const std::string doing =
      "allocating " + std::to_string(bytes) + " bytes on CUDA device " + std::to_string(device);
  ferry_session* session;
  FERRY_CLIENT_RETURN_IF_ERROR(Session(&session));
  for (const DeviceInfo& known : session->session->welcome().devices) {
    int ordinal = -1;
    if (known.kind != kGpuDevice) continue;
    StatusPtr error = FindCudaDevice(known.uuid, doing, &ordinal);
    if (error != nullptr && error->code != kNotFound) return error;
    if (error != nullptr || ordinal != device) continue;
    std::unique_ptr<ferry_arena> made;
    FERRY_CLIENT_RETURN_IF_ERROR(CreateArena(session->session, known.id, bytes, 0, &made));
    *pointer = made->data;
    std::lock_guard lock(mutex_);
    arenas_[reinterpret_cast<uintptr_t>(*pointer)] = made.release();
    return nullptr;
  }
  return Error(kNotFound, kReasonDeviceUnknown,
               doing + ": it is none of the GPUs of this node's daemon");
}

void CudaAllocator::Free(void* pointer) {
  ferry_arena* arena = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = arenas_.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == arenas_.end()) return;
    arena = found->second;
    arenas_.erase(found);
  }
  // The application hears of a sticky error of the GPU elsewhere. The memory is freed all the same.
  const StatusPtr ignored = SynchronizeDevice(arena->cuda_device, "freeing memory of a GPU");
  ferry_arena_free(arena);
}

ferry_arena* CudaAllocator::Find(const void* pointer, uint64_t* offset) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  auto next = arenas_.upper_bound(address);
  if (next == arenas_.begin()) return nullptr;
  --next;
  if (address - next->first >= next->second->bytes) return nullptr;
  if (offset != nullptr) *offset = address - next->first;
  return next->second;
}

}  // namespace ferry::client
