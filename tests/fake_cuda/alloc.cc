// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc and its legacy IPC.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "state.h"

namespace fake_cuda {
namespace {

uintptr_t Address(CUdeviceptr pointer) { return static_cast<uintptr_t>(pointer); }

// cuMemAlloc and cuIpcOpenMemHandle: mapped whole, with the context.
CUresult MapWhole(CUcontext context, std::shared_ptr<Physical> physical, bool ipc,
                  CUdeviceptr* pointer) {
  State& state = Get();
  const uintptr_t address = Reserve(physical->bytes, kGranularity);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Place(address, *physical, PROT_READ | PROT_WRITE);
  Mapping mapping;
  mapping.bytes = physical->bytes;
  mapping.context = context;
  mapping.ipc = ipc;
  mapping.buffer_id = state.next_handle++;
  mapping.physical = std::move(physical);
  state.mappings[address] = std::move(mapping);
  *pointer = address;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Physical> physical;
  const size_t whole = (bytes + 511) / 512 * 512;
  const int device = state.visible[static_cast<size_t>(context->device)];
  if (const CUresult made = Allocate(device, whole, &physical); made != CUDA_SUCCESS) return made;
  return MapWhole(context, std::move(physical), false, pointer);
}

CUresult cuMemFree(CUdeviceptr pointer) {
  State& state = Get();
  std::vector<std::shared_ptr<StreamQueue>> queues;
  {
    std::lock_guard lock(state.mutex);
    CUcontext context = nullptr;
    if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
    if (pointer == 0) return CUDA_SUCCESS;
    const auto found = state.mappings.find(Address(pointer));
    if (found == state.mappings.end() || found->second.vmm || found->second.ipc) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUstream stream : state.streams) {
      if (stream->context == found->second.context) queues.push_back(stream->queue);
    }
  }
  for (const auto& queue : queues) Drain(*queue);  // as the real one waits for the device
  std::lock_guard lock(state.mutex);
  if (const auto found = state.mappings.find(Address(pointer)); found != state.mappings.end()) {
    Forget(found);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  uintptr_t first = 0;
  const Mapping* mapping = FindMapping(Address(pointer), &first);
  if (mapping == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = first;
  if (bytes != nullptr) *bytes = mapping->bytes;
  return CUDA_SUCCESS;
}

// The handle names the process and its descriptor, which only works within one PID namespace, as
// with the real one.
struct IpcHandle {
  char magic[8];
  int pid;
  int fd;
};

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr pointer) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const Mapping* mapping = FindMapping(Address(pointer), nullptr);
  if (mapping == nullptr || mapping->vmm || mapping->ipc) return CUDA_ERROR_INVALID_VALUE;
  const IpcHandle handle = {"fakeipc", getpid(), mapping->physical->fd};
  memset(out, 0, sizeof(*out));
  memcpy(out, &handle, sizeof(handle));
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle in, unsigned flags) {
  State& state = Get();
  AwaitOpenGate();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  uint64_t& unknown = state.settings.unknown_handle;
  if (unknown > 0 && --unknown == 0) return CUDA_ERROR_UNKNOWN;
  IpcHandle handle;
  memcpy(&handle, &in, sizeof(handle));
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
      memcmp(handle.magic, "fakeipc", sizeof(handle.magic)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (handle.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string path =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Physical> physical = Import(fd);
  close(fd);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (state.settings.no_peer &&
      physical->device != state.visible[static_cast<size_t>(context->device)]) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return MapWhole(context, std::move(physical), true, pointer);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  const auto found = state.mappings.find(Address(pointer));
  if (found == state.mappings.end() || !found->second.ipc) return CUDA_ERROR_INVALID_VALUE;
  Forget(found);
  return CUDA_SUCCESS;
}

}  // extern "C"
