// SPDX-License-Identifier: Apache-2.0
// Host memory that devices reach, and what an address is.
#include <cstdlib>

#include "state.h"

namespace fake_cuda {
namespace {

const Registration* FindRegistration(uintptr_t address) {
  const auto& registered = Get().registered;
  auto next = registered.upper_bound(address);
  if (next == registered.begin()) return nullptr;
  --next;
  return address < next->first + next->second.bytes ? &next->second : nullptr;
}

}  // namespace

bool Pageable(uintptr_t address, size_t bytes) {
  if (InRegion(address)) return false;
  return FindRegistration(address) == nullptr ||
         (bytes > 0 && FindRegistration(address + bytes - 1) == nullptr);
}

bool IsDeviceWord(int device, uintptr_t address) {
  if (address % sizeof(uint64_t) != 0) return false;
  return InRegion(address) ? MayTouch(device, address, sizeof(uint64_t))
                           : !Pageable(address, sizeof(uint64_t));
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  constexpr unsigned kKnown =
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0 || InRegion(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto next = state.registered.lower_bound(address);
  if (FindRegistration(address) != nullptr ||
      (next != state.registered.end() && next->first < address + bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  state.registered[address] = {bytes, context, false};
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* pointer) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  const auto found = state.registered.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == state.registered.end() || found->second.allocated) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  state.registered.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* pointer, unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (flags != 0 || FindRegistration(address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = address;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  (void)flags;
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *pointer = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*pointer == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  state.registered[reinterpret_cast<uintptr_t>(*pointer)] = {bytes, context, true};
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* pointer) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto found = state.registered.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == state.registered.end() || !found->second.allocated) return CUDA_ERROR_INVALID_VALUE;
  state.registered.erase(found);
  free(pointer);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto address = static_cast<uintptr_t>(pointer);
  uintptr_t base = 0;
  const Mapping* mapping = FindMapping(address, &base);
  const Registration* host = FindRegistration(address);
  if (mapping == nullptr && host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto ordinal = [&]() -> int {
    if (mapping == nullptr) return host->context->device;
    for (size_t i = 0; i < state.visible.size(); ++i) {
      if (state.visible[i] == mapping->physical->device) return static_cast<int>(i);
    }
    return -1;
  };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // VMM memory belongs to no context.
      *static_cast<CUcontext*>(data) = mapping != nullptr ? mapping->context : host->context;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) =
          mapping != nullptr ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = ordinal();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<int*>(data) = mapping != nullptr && !mapping->vmm && !mapping->ipc;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      if (mapping == nullptr || mapping->vmm) return CUDA_ERROR_NOT_SUPPORTED;
      *static_cast<uint64_t*>(data) = mapping->buffer_id;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<size_t*>(data) = mapping->bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // extern "C"
