// SPDX-License-Identifier: Apache-2.0
#include "client/cuda_api.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>

namespace ferry::client {
namespace {

std::string Visible() {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "CUDA_VISIBLE_DEVICES is not set"
                            : "CUDA_VISIBLE_DEVICES is \"" + std::string(visible) + "\"";
}

std::string UuidText(const std::string& uuid) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[static_cast<unsigned char>(uuid[i]) >> 4];
    text += kDigits[static_cast<unsigned char>(uuid[i]) & 15];
  }
  return text;
}

}  // namespace

StatusPtr Cuda::Get(Cuda** cuda) {
  // Never closed and never destroyed: until the very end streams may use what it has registered.
  static Cuda* const opened = new Cuda;
  static const ferry_status* const failed = opened->Open().release();
  if (failed != nullptr) return StatusPtr(new ferry_status(*failed));
  *cuda = opened;
  return nullptr;
}

StatusPtr Cuda::Open() {
  const char* named = secure_getenv("FERRY_CUDA_LIBRARY");
  library_ = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
  const std::string doing = "opening " + library_ + " for arenas on GPUs";
  const auto lacks = [&](const std::string& why) {
    return Error(kFailedPrecondition, kReasonDeviceUnknown,
                 doing + ": " + why +
                     "; is the driver installed, and does this container have it "
                     "(FERRY_CUDA_LIBRARY names another file)?");
  };
  void* library = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return lacks(dlerror());
#define FERRY_CUDA_TEXT(name) #name
#define FERRY_CUDA_LOAD(name)                                                     \
  name = reinterpret_cast<decltype(name)>(dlsym(library, FERRY_CUDA_TEXT(name))); \
  if (name == nullptr) return lacks("it has no " FERRY_CUDA_TEXT(name) " and is too old");
  FERRY_CUDA_FUNCTIONS(FERRY_CUDA_LOAD)
#undef FERRY_CUDA_LOAD
#undef FERRY_CUDA_TEXT
  FERRY_CLIENT_CUDA(this, doing, cuInit, 0);
  int count = 0;
  FERRY_CLIENT_CUDA(this, doing, cuDeviceGetCount, &count);
  for (int i = 0; i < count; ++i) {
    CUdevice device;
    CUuuid uuid;
    FERRY_CLIENT_CUDA(this, doing, cuDeviceGet, &device, i);
    FERRY_CLIENT_CUDA(this, doing, cuDeviceGetUuid, &uuid, device);
    uuids_.emplace_back(uuid.bytes, sizeof(uuid.bytes));
    int can_flush = 0;
    FERRY_CLIENT_CUDA(this, doing, cuDeviceGetAttribute, &can_flush,
                      CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, device);
    wait_flags_.push_back(CU_STREAM_WAIT_VALUE_GEQ |
                          (can_flush != 0 ? CU_STREAM_WAIT_VALUE_FLUSH : 0));
  }
  return nullptr;
}

StatusPtr Cuda::Check(CUresult result, const std::string& doing, const char* function) const {
  if (result == CUDA_SUCCESS) return nullptr;
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS) text = nullptr;
  std::string message = doing + ": " + function + ": " +
                        (name != nullptr ? name : "error " + std::to_string(result)) +
                        (text != nullptr ? " (" + std::string(text) + ")" : "");
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Error(kResourceExhausted, kReasonDeviceMemory, message + FreeText());
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
      return Error(kFailedPrecondition, kReasonDeviceUnknown, message + "; " + Visible());
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return Error(kFailedPrecondition, kReasonDeviceUnknown,
                   message +
                       "; the GPU is in exclusive-process mode and another process has it, as the "
                       "daemon does (use the default mode or MPS), or in prohibited mode");
    // Waits for the default stream too, which waits for streams that are being captured.
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return Error(kFailedPrecondition, kReasonFieldInvalid,
                   message +
                       "; a stream of its context is being captured, in a mode that forbids this "
                       "meanwhile; do it before or after the capture");
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_NOT_SUPPORTED:
      return Error(kInvalidArgument, kReasonFieldInvalid, std::move(message));
    default:
      return Error(kInternal, kReasonInternal, std::move(message));
  }
}

std::string Cuda::FreeText() const {
  CUdevice device = 0;
  size_t free = 0;
  size_t total = 0;
  if (cuCtxGetDevice(&device) != CUDA_SUCCESS || cuMemGetInfo(&free, &total) != CUDA_SUCCESS) {
    return "";
  }
  return "; " + std::to_string(free) + " of " + std::to_string(total) + " bytes of CUDA device " +
         std::to_string(device) + " are free";
}

StatusPtr Cuda::FindDevice(const std::string& uuid, const std::string& doing, int* device) const {
  const auto found = std::find(uuids_.begin(), uuids_.end(), uuid);
  if (found == uuids_.end()) {
    return Error(kNotFound, kReasonDeviceUnknown,
                 doing + ": its GPU, " + UuidText(uuid) + ", is not among the " +
                     std::to_string(uuids_.size()) + " that this process sees; " + Visible() +
                     ", and a container must have been given the GPU");
  }
  *device = static_cast<int>(found - uuids_.begin());
  return nullptr;
}

StatusPtr Cuda::PrimaryContext(int device, const std::string& doing, CUcontext* context) {
  std::lock_guard lock(mutex_);
  const auto [entry, added] = contexts_.try_emplace(device, nullptr);
  if (added) {
    CUdevice handle;
    StatusPtr error = Check(cuDeviceGet(&handle, device), doing, "cuDeviceGet");
    if (error == nullptr) {
      error = Check(cuDevicePrimaryCtxRetain(&entry->second, handle), doing,
                    "cuDevicePrimaryCtxRetain");
    }
    if (error != nullptr) {
      contexts_.erase(entry);
      return error;
    }
  }
  *context = entry->second;
  return nullptr;
}

}  // namespace ferry::client
