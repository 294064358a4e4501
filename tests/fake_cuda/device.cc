// SPDX-License-Identifier: Apache-2.0
// Devices and contexts.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "state.h"

namespace fake_cuda {
namespace {

thread_local std::vector<CUcontext> stack;

// Chooses among the machine's devices as CUDA_VISIBLE_DEVICES says; the first bad entry ends it.
std::vector<int> Visible(int devices) {
  std::vector<int> all;
  const char* text = getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < devices; ++i) all.push_back(i);
    return all;
  }
  while (*text != '\0') {
    char* end = nullptr;
    const long index = strtol(text, &end, 10);
    if (end == text || index < 0 || index >= devices) break;
    all.push_back(static_cast<int>(index));
    text = *end == ',' ? end + 1 : end;
  }
  return all;
}

bool GoodOrdinal(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < Get().visible.size();
}

}  // namespace

void UuidOf(int device, unsigned char* uuid) {
  memcpy(uuid, "ferry-fake-", 11);
  memcpy(uuid + 11, &Get().settings.seed, sizeof(uint32_t));
  uuid[15] = static_cast<unsigned char>(device);
}

CUresult Ready() {
  State& state = Get();
  if (!state.initialized) return CUDA_ERROR_NOT_INITIALIZED;
  return state.sticky;
}

CUcontext Current() { return stack.empty() ? nullptr : stack.back(); }

CUresult ReadyIn(CUcontext* context) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  *context = Current();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // A context that was released is remembered by threads that had it.
  return Get().contexts.count(*context) != 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (state.initialized) return CUDA_SUCCESS;
  if (state.settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  state.visible = Visible(state.settings.devices);
  state.used.resize(static_cast<size_t>(state.settings.devices));
  for (size_t i = 0; i < state.visible.size(); ++i) {
    state.primaries.push_back(std::make_unique<CUctx_st>());
    state.primaries.back()->device = static_cast<int>(i);
  }
  state.initialized = true;
  return state.visible.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = Get().settings.version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
#define NAME(code) \
  case code:       \
    *name = #code; \
    return CUDA_SUCCESS
    NAME(CUDA_SUCCESS);
    NAME(CUDA_ERROR_INVALID_VALUE);
    NAME(CUDA_ERROR_OUT_OF_MEMORY);
    NAME(CUDA_ERROR_NOT_INITIALIZED);
    NAME(CUDA_ERROR_NO_DEVICE);
    NAME(CUDA_ERROR_INVALID_DEVICE);
    NAME(CUDA_ERROR_INVALID_CONTEXT);
    NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    NAME(CUDA_ERROR_INVALID_HANDLE);
    NAME(CUDA_ERROR_NOT_READY);
    NAME(CUDA_ERROR_NOT_FOUND);
    NAME(CUDA_ERROR_NOT_SUPPORTED);
    NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    NAME(CUDA_ERROR_ECC_UNCORRECTABLE);
    NAME(CUDA_ERROR_ILLEGAL_ADDRESS);
    NAME(CUDA_ERROR_DEVICE_UNAVAILABLE);
    NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    NAME(CUDA_ERROR_ILLEGAL_STATE);
    NAME(CUDA_ERROR_UNKNOWN);
#undef NAME
    default:
      *name = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const char* name = nullptr;
  if (cuGetErrorName(error, &name) != CUDA_SUCCESS) {
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
  }
  *text = error == CUDA_ERROR_OUT_OF_MEMORY       ? "out of memory"
          : error == CUDA_ERROR_ECC_UNCORRECTABLE ? "uncorrectable ECC error encountered"
                                                  : "as the fake answers";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  *count = static_cast<int>(Get().visible.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, static_cast<size_t>(size), "Fake GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  UuidOf(Get().visible[static_cast<size_t>(device)], reinterpret_cast<unsigned char*>(uuid->bytes));
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = Get().settings.memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(id, static_cast<size_t>(size), "0000:%02x:00.0",
           PciBusOf(Get().visible[static_cast<size_t>(device)]));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Settings& settings = Get().settings;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = !settings.no_vmm;
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      *value = !settings.no_rdma;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
      *value = !settings.no_flush;
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      *value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      *value = settings.exclusive    ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS
               : settings.prohibited ? CU_COMPUTEMODE_PROHIBITED
                                     : CU_COMPUTEMODE_DEFAULT;
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 3;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = 228 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *value = 1 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = settings.capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      if (settings.version < 12020) return CUDA_ERROR_INVALID_VALUE;
      *value = settings.virtual_gpus ? -1 : NumaNodeOf(Get().visible[static_cast<size_t>(device)]);
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = settings.capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
      *value = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device) || !GoodOrdinal(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer && !Get().settings.no_peer;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  CUctx_st& primary = *state.primaries[static_cast<size_t>(device)];
  if (state.settings.prohibited) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  uint64_t& fail = state.settings.fail_context;
  if (fail > 0 && --fail == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (primary.retained == 0 && state.settings.exclusive) {
    const std::string path = "/dev/shm/ferry-fake-gpu-" + std::to_string(getuid()) + "-" +
                             std::to_string(state.settings.seed) + "-" +
                             std::to_string(state.visible[static_cast<size_t>(device)]);
    primary.lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (primary.lock < 0 || flock(primary.lock, LOCK_EX | LOCK_NB) != 0) {
      close(primary.lock);
      primary.lock = -1;
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
  }
  ++primary.retained;
  state.contexts.insert(&primary);
  *context = &primary;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  State& state = Get();
  CUctx_st* primary = nullptr;
  {
    std::lock_guard lock(state.mutex);
    if (!state.initialized) return CUDA_ERROR_NOT_INITIALIZED;
    if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
    primary = state.primaries[static_cast<size_t>(device)].get();
    if (primary->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary->retained > 0) return CUDA_SUCCESS;
  }
  DropContextStreams(primary);
  std::lock_guard lock(state.mutex);
  DropContextMemory(primary);
  state.contexts.erase(primary);
  primary->peers.clear();
  if (primary->lock >= 0) close(primary->lock);
  primary->lock = -1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!GoodOrdinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = state.primaries[static_cast<size_t>(device)]->retained > 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (context != nullptr && state.contexts.count(context) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (!Get().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *context = Current();
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (context == nullptr || state.contexts.count(context) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (!Get().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (state.contexts.count(peer) == 0 || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (state.settings.no_peer) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return context->peers.insert(peer->device).second ? CUDA_SUCCESS
                                                    : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* found) {
  (void)version, (void)flags;
  // The newest version of a name is what a caller of this version means.
  void* address = nullptr;
  Dl_info own;
  if (dladdr(reinterpret_cast<void*>(&cuInit), &own) == 0) return CUDA_ERROR_NOT_FOUND;
  void* const library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return CUDA_ERROR_NOT_FOUND;
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    address = dlsym(library, (std::string(symbol) + suffix).c_str());
    if (address != nullptr) break;
  }
  dlclose(library);
  *function = address;
  if (found != nullptr) {
    *found =
        address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
