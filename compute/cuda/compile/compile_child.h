// SPDX-License-Identifier: Apache-2.0
// Runs `ferry-compile`, a process that compiles kernels for this one. It is started with the first
// kernel and kept for further ones. If a compilation goes wrong only the child ends: it is killed
// when a kernel takes longer than `patience`, or crashes, and the next kernel gets a new child.
// Calls wait for the child, so they are not for control. Home: the thread that makes the first
// call. That thread must live as long as the object, because the child ends with it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/home.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/kernel_compiler.h"

namespace ferry::compute {

// The path of ferry-compile: beside the program that runs, as in a build, or where it is installed
// relative to that. Empty if it is in neither place.
std::string FindCompiler();

class CompileChild {
 public:
  struct Options {
    std::string program;                          // the path of ferry-compile
    std::string nvrtc;                            // path of NVRTC; empty: the first that exists
    uint64_t memory_bytes = uint64_t{4} << 30;    // address space of the child
    absl::Duration patience = absl::Seconds(60);  // time for one kernel, and for the child's start
    // A descriptor that is readable when nobody wants kernels any more, and outlives the object:
    // waits end then. -1: none.
    int stop = -1;
  };
  explicit CompileChild(Options options) : options_(std::move(options)) {}
  CompileChild(const CompileChild&) = delete;
  CompileChild& operator=(const CompileChild&) = delete;
  ~CompileChild() { Kill(); }

  // NVRTC's version, for KernelKey. UNAVAILABLE/NOT_READY says what is missing: ferry-compile or
  // NVRTC.
  absl::StatusOr<std::string> Version();

  // INTERNAL with the compiler's log if the source does not compile, or with how the child ended.
  // DEADLINE_EXCEEDED/EXECUTING: it took too long, and the child was killed. CANCELLED/CANCELLED:
  // `stop` said so, and the child was killed.
  absl::StatusOr<CompiledKernel> Compile(const std::string& source, const GpuArch& arch,
                                         Tier tier = Tier::kFull);

  // How many children were started: for tests and metrics.
  int started() const { return started_; }

 private:
  absl::Status Start();
  absl::Status Spawn();
  absl::StatusOr<std::string> ReadFrame(absl::Time until);
  absl::Status Read(char* to, size_t bytes, absl::Time until);
  absl::Status Write(absl::string_view bytes, absl::Time until);
  absl::Status Await(short events, absl::Time until);
  // How the child ended, after it has closed its end of the stream. The child is reaped, and killed
  // if it does not end by `until`.
  absl::Status Ended(absl::Time until);
  void Kill();

  const Options options_;
  pid_t pid_ = -1;
  UniqueFd stream_;
  std::string version_;
  int started_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry::compute
