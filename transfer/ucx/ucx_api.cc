// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_api.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {
namespace {

// The nbx calls and the cached keys of ucp_config_modify.
constexpr unsigned kOldestMinor = 12;
constexpr char kLibrary[] = "libucp.so.0";

absl::Status Unavailable(const std::string& library, absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
               absl::StrCat("opening ", library, ": ", why));
}

// Ours comes beside the program.
std::string OurLibrary() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "lib/ferry/ucx" / kLibrary;
}

absl::StatusOr<UcxApi> Open(const std::string& path) {
  // UCX must not install handlers: neither for SIGSEGV and friends nor, for what it calls its debug
  // mode, for SIGHUP. Signals are the program's.
  setenv("UCX_HANDLE_ERRORS", "none", /*overwrite=*/1);
  setenv("UCX_DEBUG_SIGNO", "0", /*overwrite=*/1);
  // Nor patch malloc and mmap of the process, nor talk on stdout: every error comes back as a
  // status. What an operator has set of the rest stays.
  setenv("UCX_MEM_EVENTS", "n", /*overwrite=*/0);
  setenv("UCX_LOG_LEVEL", "fatal", /*overwrite=*/0);
  // TCP reads this much of a socket at once. 256 MiB over loopback, GB/s: 64K (the default) 1.9,
  // 1M 3.8. A setting of a transport, which this UCX takes from the environment only.
  setenv("UCX_TCP_RX_SEG_SIZE", "1M", /*overwrite=*/0);
  // And it sends fragments of this size: 256 MiB with 8K (the default) 1.7 GB/s,
  // with 64K 3.4. Not more: a peer may have left the other setting at its default.
  setenv("UCX_TCP_TX_SEG_SIZE", "64K", /*overwrite=*/0);
  // Or a host that does not answer would hold up the lane inside connect().
  setenv("UCX_TCP_CONN_NB", "y", /*overwrite=*/0);
  // Never closed: UCX has threads and process-wide state of its own.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable(path, dlerror());
  UcxApi api;
#define FERRY_UCX_LOAD(name)                                              \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  if (api.name == nullptr) return Unavailable(path, absl::StrCat("it has no ", #name));
  FERRY_UCX_FUNCTIONS(FERRY_UCX_LOAD)
#undef FERRY_UCX_LOAD
  unsigned major = 0, minor = 0, release = 0;
  api.ucp_get_version(&major, &minor, &release);
  if (major != 1 || minor < kOldestMinor) {
    return Unavailable(
        path, absl::StrCat("version ", major, ".", minor, ".", release, " is not supported (1.",
                           kOldestMinor, " or later 1.x is)"));
  }
  return api;
}

}  // namespace

absl::StatusOr<const UcxApi*> LoadUcx(const std::string& library) {
  static const absl::StatusOr<UcxApi>& api =
      *new absl::StatusOr<UcxApi>(Open(!library.empty()        ? library
                                       : WhyHostsUcx().empty() ? OurLibrary()
                                                               : kLibrary));
  if (!api.ok()) return api.status();
  return &*api;
}

bool HasRdmaAdapters() {
  std::error_code error;
  const std::filesystem::path adapters("/sys/class/infiniband");
  return std::filesystem::exists(adapters, error) && !std::filesystem::is_empty(adapters, error);
}

std::string WhyHostsUcx() {
  if (HasRdmaAdapters()) return "it has the modules of this host's RDMA adapters";
  std::error_code error;
  const std::string ours = OurLibrary();
  return std::filesystem::exists(ours, error) ? "" : absl::StrCat("there is no ", ours);
}

std::string UcxVersion(const UcxApi& api) { return api.ucp_get_version_string(); }

}  // namespace ferry
