// SPDX-License-Identifier: Apache-2.0
// Settings, stories, and what all calls share.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <sstream>

#include "state.h"

namespace fake_nccl {
namespace {

thread_local std::string last_error;

Settings Read() {
  Settings settings;
  const char* const text = getenv("FERRY_FAKE_NCCL");
  std::istringstream in(text == nullptr ? "" : text);
  for (std::string entry; std::getline(in, entry, ';');) {
    const size_t equals = entry.find('=');
    if (entry.empty()) continue;
    const std::string key = entry.substr(0, equals);
    const std::string value = equals == std::string::npos ? "1" : entry.substr(equals + 1);
    const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "version") {
      settings.version = static_cast<int>(number);
    } else if (key == "comm_mib") {
      settings.comm_mib = number;
    } else if (key == "open_gate") {
      settings.open_gate = value;
    } else if (key == "group_gate") {
      settings.group_gate = value;
    } else if (key == "slice_gate") {
      settings.slice_gate = value;
    } else if (key == "abort_gate") {
      settings.abort_gate = value;
    } else if (key == "fail_open") {
      settings.fail_open = number;
    } else if (key == "hang_open") {
      settings.hang_open = number;
    } else if (key == "async_error") {
      settings.async_error = number;
    } else if (key == "stuck_launch") {
      settings.stuck_launch = number;
    } else if (key == "stuck_mark") {
      settings.stuck_mark = value;
    } else if (key == "lost_peer") {
      settings.lost_peer = number != 0;
    } else {
      // A misspelt setting must not make a test pass.
      Story("FERRY_FAKE_NCCL: unknown setting '" + key + "'");
    }
  }
  return settings;
}

Driver OpenDriver() {
  const char* const path = getenv("FERRY_CUDA_LIBRARY");
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) Story("FERRY_CUDA_LIBRARY names no library that is open");
  Driver driver;
#define FAKE_NCCL_TEXT_OF(name) #name
#define FAKE_NCCL_TEXT(name) FAKE_NCCL_TEXT_OF(name)
#define FAKE_NCCL_FIND(name)                                                                   \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, FAKE_NCCL_TEXT(name))); \
  if (driver.name == nullptr) Story("the CUDA library has no " FAKE_NCCL_TEXT(name));
  FAKE_NCCL_FIND(cuCtxGetCurrent)
  FAKE_NCCL_FIND(cuCtxGetDevice)
  FAKE_NCCL_FIND(cuStreamGetCtx)
  FAKE_NCCL_FIND(cuDeviceGetUuid)
  FAKE_NCCL_FIND(cuMemAlloc)
  FAKE_NCCL_FIND(cuMemFree)
  FAKE_NCCL_FIND(cuMemGetAddressRange)
  FAKE_NCCL_FIND(cuLaunchHostFunc)
  FAKE_NCCL_FIND(cuCtxSetCurrent)
#undef FAKE_NCCL_FIND
  return driver;
}

}  // namespace

const Settings& Get() {
  static const Settings* const settings = new Settings(Read());
  return *settings;
}

const Driver& Cuda() {
  static const Driver* const driver = new Driver(OpenDriver());
  return *driver;
}

void Story(const std::string& text) {
  fprintf(stderr, "fake NCCL: %s\n", text.c_str());
  fflush(stderr);
  abort();
}

void SetLastError(const std::string& text) { last_error = text; }

void CheckUsable(const ncclComm* comm, const std::string& call) {
  if (comm == nullptr) Story(call + " without a communicator");
  if (comm->gone) Story(call + " after the communicator was aborted");
  if (comm->aborting) Story(call + " while the communicator is being aborted");
}

Use::Use(ncclComm* comm, const char* call) : comm_(comm) {
  CheckUsable(comm, call);
  if (comm->in_call.fetch_add(1) != 0) {
    Story(std::string(call) + " while another thread is in the same communicator");
  }
}

Use::~Use() {
  std::lock_guard lock(comm_->mutex);
  --comm_->in_call;
  comm_->changed.notify_all();
}

}  // namespace fake_nccl

using namespace fake_nccl;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = Get().version;
  return kSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kSystemError:
      return "unhandled system error";
    case kInternalError:
      return "internal error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm*) { return last_error.c_str(); }

ncclResult_t ncclCommGetAsyncError(ncclComm* comm, ncclResult_t* error) {
  CheckUsable(comm, "ncclCommGetAsyncError");
  *error = comm->async_error;
  return kSuccess;
}

}  // extern "C"
