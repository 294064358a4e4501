// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/bare_program.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {
namespace {

struct Times {
  int64_t init_ns = 0;
  int64_t context_ns = 0;
};

}  // namespace

absl::StatusOr<BareProgram> BareProgram::Start(const std::string& self, int device) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "make a socket pair", errno);
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  tools::SpawnOptions options;
  options.arguments = {self, "bare-program", absl::StrCat(device)};
  options.fd = theirs.get();
  ASSIGN_OR_RETURN(tools::ChildProcess process, tools::ChildProcess::Spawn(options));
  theirs.Reset();
  BareProgram program(std::move(process), std::move(ours));
  const timeval patience = {60, 0};
  setsockopt(program.socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  Times times;
  if (recv(program.socket_.get(), &times, sizeof(times), 0) != sizeof(times)) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 "a bare program opened no context of a GPU in 60 s");
  }
  program.init_ = absl::Nanoseconds(times.init_ns);
  program.context_ = absl::Nanoseconds(times.context_ns);
  return program;
}

int RunBareProgram(int device, int socket) {
  const char* const named = getenv("FERRY_CUDA_LIBRARY");
  void* const library = dlopen(named == nullptr ? "libcuda.so.1" : named, RTLD_NOW);
  if (library == nullptr) return 1;
  const auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(library, "cuInit"));
  const auto get = reinterpret_cast<decltype(&cuDeviceGet)>(dlsym(library, "cuDeviceGet"));
  const auto retain = reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(
      dlsym(library, "cuDevicePrimaryCtxRetain"));
  if (init == nullptr || get == nullptr || retain == nullptr) return 1;
  const int64_t start = tools::MonotonicNanoseconds();
  if (init(0) != CUDA_SUCCESS) return 1;
  const int64_t initialized = tools::MonotonicNanoseconds();
  CUdevice handle;
  CUcontext context;
  if (get(&handle, device) != CUDA_SUCCESS || retain(&context, handle) != CUDA_SUCCESS) return 1;
  const Times times{initialized - start, tools::MonotonicNanoseconds() - initialized};
  if (send(socket, &times, sizeof(times), MSG_NOSIGNAL) != sizeof(times)) return 1;
  char byte;
  return recv(socket, &byte, 1, 0) == 0 ? 0 : 1;
}

}  // namespace ferry::bench
