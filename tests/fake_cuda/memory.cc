// SPDX-License-Identifier: Apache-2.0
// Device memory, and its virtual memory management.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "state.h"

namespace fake_cuda {
namespace {

constexpr char kMemfdName[] = "ferry-fake-gpu-memory-";

uintptr_t Address(CUdeviceptr pointer) { return static_cast<uintptr_t>(pointer); }

// A device of the machine as this process numbers it; -1 if it cannot see it.
int OrdinalOf(int device) {
  const std::vector<int>& visible = Get().visible;
  const auto found = std::find(visible.begin(), visible.end(), device);
  return found == visible.end() ? -1 : static_cast<int>(found - visible.begin());
}

void TakeAway(uintptr_t address, size_t bytes) {
  if (mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    abort();
  }
}

// The reservation that holds these bytes whole.
bool IsReserved(uintptr_t address, size_t bytes) {
  const auto& reserved = Get().reserved;
  auto next = reserved.upper_bound(address);
  if (next == reserved.begin()) return false;
  --next;
  return address + bytes <= next->first + next->second;
}

// The mappings that these bytes are, exactly; empty if they are not.
std::vector<uintptr_t> Exactly(uintptr_t address, size_t bytes) {
  std::vector<uintptr_t> found;
  const auto& mappings = Get().mappings;
  const uintptr_t end = address + bytes;
  for (auto it = mappings.find(address); it != mappings.end() && it->first == address; ++it) {
    found.push_back(it->first);
    address += it->second.bytes;
    if (address == end) return found;
  }
  return {};
}

}  // namespace

CUresult Allocate(int device, size_t bytes, std::shared_ptr<Physical>* made) {
  State& state = Get();
  uint64_t& used = state.used[static_cast<size_t>(device)];
  if (bytes > state.settings.memory - std::min(state.settings.memory, used)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto physical = std::make_shared<Physical>();
  physical->device = device;
  physical->fd = memfd_create((kMemfdName + std::to_string(device)).c_str(), MFD_CLOEXEC);
  if (physical->fd < 0 || ftruncate(physical->fd, static_cast<off_t>(bytes)) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical->bytes = bytes;
  used += bytes;
  *made = std::move(physical);
  return CUDA_SUCCESS;
}

std::shared_ptr<Physical> Import(int fd) {
  char path[64];
  char link[128];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(path, link, sizeof(link) - 1);
  if (length < 0) return nullptr;
  link[length] = '\0';
  const std::string prefix = std::string("/memfd:") + kMemfdName;
  struct stat file;
  if (strncmp(link, prefix.c_str(), prefix.size()) != 0 || fstat(fd, &file) != 0) return nullptr;
  auto physical = std::make_shared<Physical>();
  physical->ours = false;
  physical->device = atoi(link + prefix.size());
  physical->bytes = static_cast<size_t>(file.st_size);
  physical->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  physical->exportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  physical->rdma = true;
  return physical;
}

void Place(uintptr_t address, const Physical& physical, int protection) {
  if (mmap(reinterpret_cast<void*>(address), physical.bytes, protection, MAP_SHARED | MAP_FIXED,
           physical.fd, 0) == MAP_FAILED) {
    abort();
  }
}

void Forget(std::map<uintptr_t, Mapping>::iterator mapping) {
  State& state = Get();
  TakeAway(mapping->first, mapping->second.bytes);
  if (!mapping->second.vmm) state.reserved.erase(mapping->first);
  state.mappings.erase(mapping);
}

Physical::~Physical() {
  if (ours) Get().used[static_cast<size_t>(device)] -= bytes;
  if (fd >= 0) close(fd);
}

bool InRegion(uintptr_t address) {
  const auto begin = reinterpret_cast<uintptr_t>(Get().region);
  return address >= begin && address < begin + Get().region_bytes;
}

uintptr_t Reserve(size_t bytes, size_t alignment) {
  State& state = Get();
  // Addresses are not used again before all have been: a stale pointer shall find nothing.
  const auto begin = reinterpret_cast<uintptr_t>(state.region);
  const uintptr_t end = begin + state.region_bytes;
  const size_t whole = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  for (int lap = 0; lap < 2; ++lap) {
    uintptr_t at = std::max(begin, lap == 0 ? state.last_reserved : begin);
    while (true) {
      at = (at + alignment - 1) / alignment * alignment;
      if (at + whole > end) break;
      auto next = state.reserved.lower_bound(at);
      const uintptr_t before =
          next == state.reserved.begin() ? begin : std::prev(next)->first + std::prev(next)->second;
      if (before > at) {
        at = before;
      } else if (next != state.reserved.end() && next->first < at + whole) {
        at = next->first + next->second;
      } else {
        state.reserved[at] = whole;
        state.last_reserved = at + whole;
        return at;
      }
    }
  }
  return 0;
}

Mapping* FindMapping(uintptr_t address, uintptr_t* base) {
  auto& mappings = Get().mappings;
  auto next = mappings.upper_bound(address);
  if (next == mappings.begin()) return nullptr;
  --next;
  if (address >= next->first + next->second.bytes) return nullptr;
  if (base != nullptr) *base = next->first;
  return &next->second;
}

bool MayTouch(int device, uintptr_t address, size_t bytes) {
  if (!InRegion(address)) return true;
  const int physical_device = Get().visible[static_cast<size_t>(device)];
  for (const uintptr_t end = address + bytes; address < end;) {
    uintptr_t base = 0;
    const Mapping* mapping = FindMapping(address, &base);
    if (mapping == nullptr) return false;
    if (mapping->vmm && mapping->access.count(physical_device) == 0) return false;
    const bool elsewhere = mapping->ipc && mapping->context->device != device;
    if (elsewhere && Get().settings.ipc_at_home) return false;
    address = base + mapping->bytes;
  }
  return true;
}

void DropContextMemory(CUcontext context) {
  State& state = Get();
  for (auto it = state.mappings.begin(); it != state.mappings.end();) {
    const auto here = it++;
    if (here->second.context == context) Forget(here);
  }
  for (auto it = state.registered.begin(); it != state.registered.end();) {
    const auto here = it++;
    if (here->second.context != context) continue;
    if (here->second.allocated) free(reinterpret_cast<void*>(here->first));
    state.registered.erase(here);
  }
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  const auto device = static_cast<size_t>(state.visible[static_cast<size_t>(context->device)]);
  *total = state.settings.memory;
  *free_bytes = state.settings.memory - state.used[device];
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  (void)option;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (state.settings.no_vmm) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags != 0 || bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (state.settings.no_rdma && properties->allocFlags.gpuDirectRDMACapable != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const int ordinal = properties->location.id;
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= state.visible.size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  std::shared_ptr<Physical> physical;
  if (const CUresult made = Allocate(state.visible[static_cast<size_t>(ordinal)], bytes, &physical);
      made != CUDA_SUCCESS) {
    return made;
  }
  physical->exportable = properties->requestedHandleTypes;
  physical->rdma = properties->allocFlags.gpuDirectRDMACapable != 0;
  *handle = state.next_handle++;
  state.handles[*handle] = {std::move(physical), 1};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto found = state.handles.find(handle);
  if (found == state.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.second == 0) state.handles.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const Mapping* mapping = FindMapping(reinterpret_cast<uintptr_t>(address), nullptr);
  if (mapping == nullptr || !mapping->vmm) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [known, entry] : state.handles) {  // as long as there is one, it is that one
    if (entry.first != mapping->physical) continue;
    ++entry.second;
    *handle = known;
    return CUDA_SUCCESS;
  }
  *handle = state.next_handle++;
  state.handles[*handle] = {mapping->physical, 1};
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto found = state.handles.find(handle);
  if (found == state.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const Physical& physical = *found->second.first;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, OrdinalOf(physical.device)};
  properties->requestedHandleTypes = physical.exportable;
  properties->allocFlags.gpuDirectRDMACapable = physical.rdma;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto found = state.handles.find(handle);
  if (found == state.handles.end() || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Physical& physical = *found->second.first;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || physical.exportable != type) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(physical.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(out, &fd, sizeof(fd));
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                        CUmemAllocationHandleType type) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t& fail = state.settings.fail_import;
  if (fail > 0 && --fail == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t& unknown = state.settings.unknown_handle;
  if (unknown > 0 && --unknown == 0) return CUDA_ERROR_UNKNOWN;
  std::shared_ptr<Physical> physical =
      Import(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)));
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (OrdinalOf(physical->device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  *handle = state.next_handle++;
  state.handles[*handle] = {std::move(physical), 1};
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment,
                             CUdeviceptr where, unsigned long long flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  (void)where;  // a hint
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0 || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pointer = Reserve(bytes, std::max(alignment, kGranularity));
  return *pointer == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto found = state.reserved.find(Address(pointer));
  if (found == state.reserved.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto first = state.mappings.lower_bound(found->first);
  if (first != state.mappings.end() && first->first < found->first + bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  state.reserved.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto found = state.handles.find(handle);
  const uintptr_t address = Address(pointer);
  if (found == state.handles.end() || flags != 0 || offset != 0) return CUDA_ERROR_INVALID_VALUE;
  if (address % kGranularity != 0 || bytes != found->second.first->bytes ||
      !IsReserved(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t& fail = state.settings.fail_map;
  if (fail > 0 && --fail == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto next = state.mappings.lower_bound(address);
  if (FindMapping(address, nullptr) != nullptr ||
      (next != state.mappings.end() && next->first < address + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Place(address, *found->second.first, PROT_NONE);
  Mapping mapping;
  mapping.bytes = bytes;
  mapping.vmm = true;
  mapping.physical = found->second.first;
  state.mappings[address] = std::move(mapping);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const std::vector<uintptr_t> mapped = Exactly(Address(pointer), bytes);
  if (mapped.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const uintptr_t address : mapped) {
    if (!state.mappings[address].vmm) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const uintptr_t address : mapped) Forget(state.mappings.find(address));
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const std::vector<uintptr_t> mapped = Exactly(Address(pointer), bytes);
  if (mapped.empty() || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const int ordinal = access[i].location.id;
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || ordinal < 0 ||
        static_cast<size_t>(ordinal) >= state.visible.size()) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    const int device = state.visible[static_cast<size_t>(ordinal)];
    for (const uintptr_t address : mapped) {
      Mapping& mapping = state.mappings[address];
      if (!mapping.vmm) return CUDA_ERROR_INVALID_VALUE;
      if (state.settings.no_peer && mapping.physical->device != device) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        mapping.access.erase(device);
      } else {
        mapping.access.insert(device);
      }
      mprotect(reinterpret_cast<void*>(address), mapping.bytes,
               mapping.access.empty() ? PROT_NONE : PROT_READ | PROT_WRITE);
    }
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
