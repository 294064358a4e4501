// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/nvml.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr int kSuccess = 0;             // NVML_SUCCESS
constexpr unsigned kVersionBytes = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& path) {
  const auto unavailable = [&](absl::string_view why) {
    return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
                 absl::StrCat("open ", path, ": ", why));
  };
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) {
    return unavailable(absl::StripPrefix(dlerror(), absl::StrCat(path, ": ")));
  }
  std::string missing;
  const auto find = [&](const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr && missing.empty()) missing = name;
    return found;
  };
  std::unique_ptr<Nvml> nvml(new Nvml());
  const auto init = reinterpret_cast<int (*)()>(find("nvmlInit_v2"));
  const auto version =
      reinterpret_cast<int (*)(char*, unsigned)>(find("nvmlSystemGetDriverVersion"));
  nvml->by_uuid_ = reinterpret_cast<decltype(nvml->by_uuid_)>(find("nvmlDeviceGetHandleByUUID"));
  nvml->memory_info_ =
      reinterpret_cast<decltype(nvml->memory_info_)>(find("nvmlDeviceGetMemoryInfo"));
  if (!missing.empty()) return unavailable(absl::StrCat("it has no ", missing));
  if (const int error = init(); error != kSuccess) {
    return unavailable(absl::StrCat("nvmlInit: error ", error));
  }
  char text[kVersionBytes] = {};
  if (version(text, kVersionBytes) == kSuccess) nvml->driver_version_ = text;
  return nvml;
}

std::optional<Nvml::Memory> Nvml::MemoryOf(const std::string& uuid) const {
  void* device = nullptr;
  Memory memory;
  if (by_uuid_(uuid.c_str(), &device) != kSuccess || memory_info_(device, &memory) != kSuccess) {
    return std::nullopt;
  }
  return memory;
}

}  // namespace ferry
