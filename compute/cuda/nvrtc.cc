// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/nvrtc.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"
#include "base/status.h"

namespace ferry::compute {
namespace {

// By what the loader searches, then where CUDA is installed. The newest first: it knows most GPUs.
constexpr const char* kLibraries[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                      "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12"};

absl::Status Unavailable(const std::string& library, absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
               absl::StrCat("open ", library, ": ", why));
}

absl::StatusOr<NvrtcApi> OpenNvrtc(const std::string& path) {
  // Never closed, as the driver.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(path, absl::StripPrefix(dlerror(), absl::StrCat(path, ": ")));
  }
  NvrtcApi api;
#define FERRY_NVRTC_LOAD(name, ...)                                                \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name));          \
  if (api.name == nullptr) {                                                       \
    return Unavailable(path, "it has no " #name "; CUDA 12.0 or later is needed"); \
  }
  FERRY_NVRTC_FUNCTIONS(FERRY_NVRTC_LOAD)
#undef FERRY_NVRTC_LOAD
  int major = 0;
  int minor = 0;
  if (const int got = api.nvrtcVersion(&major, &minor); got != kNvrtcSuccess) {
    return Unavailable(path, api.nvrtcGetErrorString(got));
  }
  api.version = absl::StrCat(major, ".", minor);
  return api;
}

absl::StatusOr<NvrtcApi> OpenAnyNvrtc() {
  absl::Status first;
  for (const char* library : kLibraries) {
    absl::StatusOr<NvrtcApi> opened = OpenNvrtc(library);
    if (opened.ok()) return opened;
    if (first.ok()) first = opened.status();
  }
  return first;
}

}  // namespace

absl::StatusOr<const NvrtcApi*> LoadNvrtc(const std::string& library) {
  static Mutex& mutex = *new Mutex();
  static auto& loaded = *new std::map<std::string, std::unique_ptr<NvrtcApi>>();
  MutexLock lock(mutex);
  std::unique_ptr<NvrtcApi>& api = loaded[library];
  if (api == nullptr) {
    ASSIGN_OR_RETURN(NvrtcApi opened, library.empty() ? OpenAnyNvrtc() : OpenNvrtc(library));
    api = std::make_unique<NvrtcApi>(std::move(opened));
  }
  return api.get();
}

}  // namespace ferry::compute
