// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/driver/gpu_driver.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <utility>

#include "device/cuda/cuda_device.h"

namespace ferry::testing {

const GpuDriver* GpuDriver::Get(std::string* why) {
  static GpuDriver* const driver = new GpuDriver;
  static const std::string* const missing = new std::string(driver->Open());
  *why = *missing;
  return missing->empty() ? driver : nullptr;
}

std::string GpuDriver::Open() {
  const char* named = getenv("FERRY_CUDA_LIBRARY");
  const std::string path = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return dlerror();
#define FERRY_GPU_DRIVER_TEXT(name) #name
#define FERRY_GPU_DRIVER_LOAD(name)                                                      \
  name = reinterpret_cast<decltype(name)>(dlsym(library_, FERRY_GPU_DRIVER_TEXT(name))); \
  if (name == nullptr) return path + " has no " FERRY_GPU_DRIVER_TEXT(name);
  FERRY_GPU_DRIVER_FUNCTIONS(FERRY_GPU_DRIVER_LOAD)
#undef FERRY_GPU_DRIVER_LOAD
#undef FERRY_GPU_DRIVER_TEXT
  int count = 0;
  CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) result = cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return path + ": " + Name(result);
  if (count == 0) return path + ": no device is visible";
  for (int i = 0; i < count; ++i) {
    CUdevice device;
    CUcontext context = nullptr;
    result = cuDeviceGet(&device, i);
    if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS) return "device " + std::to_string(i) + ": " + Name(result);
    contexts_.push_back(context);
    CUuuid uuid;
    result = cuDeviceGetUuid(&uuid, device);
    if (result != CUDA_SUCCESS) return "device " + std::to_string(i) + ": " + Name(result);
    GpuInfo info;
    info.uuid.assign(uuid.bytes, sizeof(uuid.bytes));
    uuids_.push_back(info.uuid_text());
  }
  for (CUcontext context : contexts_) {
    cuCtxSetCurrent(context);
    for (CUcontext other : contexts_) {
      if (other != context) cuCtxEnablePeerAccess(other, 0);  // where there is none, copies stage
    }
  }
  cuCtxSetCurrent(contexts_[0]);
  // The fake is both libraries. Containers may have no NVML.
  const bool both = FindSymbol("nvmlInit_v2") != nullptr;
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(both ? path : "libnvidia-ml.so.1");
  if (nvml.ok() && (*nvml)->MemoryOf(uuids_[0]).has_value()) nvml_ = *std::move(nvml);
  return "";
}

void* GpuDriver::FindSymbol(const char* name) const { return dlsym(library_, name); }

std::string GpuDriver::device_name(int device) const {
  char name[128] = "";
  cuDeviceGetName(name, sizeof(name), device);
  return name;
}

uint64_t GpuDriver::FreeBytes(int device) const {
  if (nvml_ != nullptr) return nvml_->MemoryOf(uuids_[static_cast<size_t>(device)]).value().free;
  size_t free = 0, total = 0;
  cuCtxSetCurrent(context(device));
  if (cuMemGetInfo(&free, &total) != CUDA_SUCCESS) abort();  // a test that went on could not fail
  return free;
}

std::string GpuDriver::Name(CUresult result) const {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return name != nullptr ? name : "CUDA error " + std::to_string(result);
}

}  // namespace ferry::testing
