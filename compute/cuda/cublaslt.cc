// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/cublaslt.h"

#include <dlfcn.h>

#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"
#include "base/status.h"
#include "compute/cuda/cublaslt_library.h"

namespace ferry::compute {
namespace {

// By what the loader searches, then where CUDA is installed. The newest first.
constexpr const char* kLibraries[] = {
    "libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",  //
    "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12"};

constexpr int kOldest = 12;
constexpr int kOfMajor = 1000;  // of CUDA's version numbers: 13000 is 13.0

absl::Status Unavailable(const std::string& library, absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
               absl::StrCat("open ", library, ": ", why));
}

absl::StatusOr<CublasLtApi> OpenCublasLt(const std::string& path, int driver) {
  // Never closed, as the driver.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(path, absl::StripPrefix(dlerror(), absl::StrCat(path, ": ")));
  }
  CublasLtApi api;
#define FERRY_CUBLASLT_LOAD(name, ...)                                             \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name));          \
  if (api.name == nullptr) {                                                       \
    return Unavailable(path, "it has no " #name "; CUDA 12.0 or later is needed"); \
  }
  FERRY_CUBLASLT_FUNCTIONS(FERRY_CUBLASLT_LOAD)
#undef FERRY_CUBLASLT_LOAD
  const size_t version = api.cublasLtGetVersion();  // 130100 is 13.1.0
  api.version = absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  const int cuda = static_cast<int>(api.cublasLtGetCudartVersion()) / kOfMajor;
  if (cuda < kOldest) {
    return Unavailable(path, absl::StrCat("it is of CUDA ", cuda, ", 12 or later is needed"));
  }
  // A library works with drivers of its own major version and later ones.
  if (cuda > driver / kOfMajor) {
    return Unavailable(
        path, absl::StrCat("it is of CUDA ", cuda, ", the driver of CUDA ", driver / kOfMajor));
  }
  return api;
}

absl::StatusOr<CublasLtApi> OpenAnyCublasLt(int driver) {
  absl::Status first;
  for (const char* library : kLibraries) {
    absl::StatusOr<CublasLtApi> opened = OpenCublasLt(library, driver);
    if (opened.ok()) return opened;
    if (first.ok()) first = opened.status();
  }
  return first;
}

}  // namespace

absl::StatusOr<const CublasLtApi*> LoadCublasLt(const std::string& library, int driver) {
  static Mutex& mutex = *new Mutex();
  static auto& loaded = *new std::map<std::string, std::unique_ptr<CublasLtApi>>();
  MutexLock lock(mutex);
  std::unique_ptr<CublasLtApi>& api = loaded[library];
  if (api == nullptr) {
    ASSIGN_OR_RETURN(CublasLtApi opened,
                     library.empty() ? OpenAnyCublasLt(driver) : OpenCublasLt(library, driver));
    api = std::make_unique<CublasLtApi>(std::move(opened));
  }
  return api.get();
}

absl::StatusOr<const CublasLtApi*> CublasLtLibrary::Get() const {
  if (library_ == kNone) {
    return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
                 "devices.cublaslt_library is none");
  }
  return LoadCublasLt(library_, driver_);
}

}  // namespace ferry::compute
