// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/nccl_api.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";
// ncclCommInitRankConfig with maxCTAs, and aborts that free a thread stuck in a call.
constexpr int kOldest = 21800;

absl::Status Unavailable(const std::string& library, absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
               absl::StrCat("opening ", library, ": ", why));
}

absl::StatusOr<NcclApi> Open(const std::string& library) {
  // Never closed: NCCL has threads and process-wide state of its own.
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return Unavailable(library, dlerror());
  NcclApi api;
  api.path = library;
  std::string missing;
  const auto find = [&](auto& function, const char* name, bool needed) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(opened, name));
    if (function == nullptr && needed && missing.empty()) missing = name;
  };
  find(api.GetVersion, "ncclGetVersion", true);
  find(api.GetUniqueId, "ncclGetUniqueId", true);
  find(api.CommInitRankConfig, "ncclCommInitRankConfig", true);
  find(api.CommAbort, "ncclCommAbort", true);
  find(api.CommRevoke, "ncclCommRevoke", false);
  find(api.CommGetAsyncError, "ncclCommGetAsyncError", true);
  find(api.GroupStart, "ncclGroupStart", true);
  find(api.GroupEnd, "ncclGroupEnd", true);
  find(api.Send, "ncclSend", true);
  find(api.Recv, "ncclRecv", true);
  find(api.GetErrorString, "ncclGetErrorString", true);
  find(api.GetLastError, "ncclGetLastError", true);
  if (!missing.empty()) return Unavailable(library, absl::StrCat("it has no ", missing));
  if (const ncclResult_t got = api.GetVersion(&api.version); got != kNcclSuccess) {
    return Unavailable(library, absl::StrCat("ncclGetVersion: ", api.GetErrorString(got)));
  }
  if (api.version < kOldest) {
    return Unavailable(library, absl::StrCat("version ", api.version_text(),
                                             " is too old, 2.18 or later is needed"));
  }
  return api;
}

}  // namespace

std::string NcclApi::version_text() const {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<const NcclApi*> LoadNccl(const std::string& library,
                                        const std::map<std::string, std::string>& environment,
                                        const std::string& interface) {
  static Mutex& mutex = *new Mutex();
  static auto& loaded = *new std::map<std::string, std::unique_ptr<NcclApi>>();
  MutexLock lock(mutex);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  setenv("NCCL_RAS_ENABLE", "0", /*overwrite=*/0);
  if (!interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", interface).c_str(), /*overwrite=*/0);
  }
  const std::string path = library.empty() ? kLibrary : library;
  std::unique_ptr<NcclApi>& api = loaded[path];
  if (api == nullptr) {
    ASSIGN_OR_RETURN(NcclApi opened, Open(path));
    api = std::make_unique<NcclApi>(std::move(opened));
  }
  return api.get();
}

std::vector<std::string> NcclEnvironment() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (absl::StartsWith(*entry, "NCCL_")) found.emplace_back(*entry);
  }
  std::sort(found.begin(), found.end());
  return found;
}

absl::Status NcclError(const NcclApi& api, ncclResult_t result, absl::string_view doing) {
  const char* const last = api.GetLastError(nullptr);
  const char* const interface = getenv("NCCL_SOCKET_IFNAME");
  const bool of_network = result == kNcclSystemError || result == kNcclRemoteError;
  return Error(
      absl::StatusCode::kAborted, Reason::kCommAborted,
      absl::StrCat(doing, ": NCCL: ", api.GetErrorString(result),
                   last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last,
                   of_network && interface != nullptr
                       ? absl::StrCat(" (NCCL_SOCKET_IFNAME is ", interface, ")")
                       : ""));
}

int MaxCtas(int wanted, int version, int compute_major,
            const std::vector<std::string>& environment) {
  const bool said = std::any_of(environment.begin(), environment.end(), [](const auto& entry) {
    return absl::StartsWith(entry, "NCCL_MAX_CTAS=") ||
           absl::StartsWith(entry, "NCCL_MAX_NCHANNELS=");
  });
  if (wanted != 0 || said) return wanted;
  return version >= 22800 && compute_major == 10 ? 32 : 0;
}

int AgreedCtas(int ours, int theirs) {
  return ours == 0 || theirs == 0 ? std::max(ours, theirs) : std::min(ours, theirs);
}

ncclConfig_t BlockingConfig(int max_ctas) {
  ncclConfig_t config = {};
  config.size = sizeof(config);
  config.magic = 0xcafebeef;
  config.version = 21700;
  config.blocking = 1;
  config.cgaClusterSize = INT_MIN;  // not said, as the next one
  config.minCTAs = INT_MIN;
  config.maxCTAs = max_ctas == 0 ? INT_MIN : max_ctas;
  return config;
}

}  // namespace ferry
