// SPDX-License-Identifier: Apache-2.0
// CompileChild: `ferry-compile`, a process that compiles kernels for this one. It is started with
// the first kernel and kept for the next ones. What a compilation does wrong is the child's end
// only: it is killed when a kernel takes longer than `patience`, and may crash; the next kernel has
// a new child. Calls wait for the child, so not on control. Home: the thread that has made the
// first call, which has to live as long as the object: the child ends with that thread.
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
    std::string nvrtc;                            // of the library; empty: the first that there is
    uint64_t memory_bytes = uint64_t{4} << 30;    // of address space that the child has
    absl::Duration patience = absl::Seconds(60);  // for one kernel, and for the child's start
  };
  explicit CompileChild(Options options) : options_(std::move(options)) {}
  CompileChild(const CompileChild&) = delete;
  CompileChild& operator=(const CompileChild&) = delete;
  ~CompileChild() { Kill(); }

  // NVRTC's, for KernelKey. UNAVAILABLE/NOT_READY with what is missing: the program, or NVRTC.
  absl::StatusOr<std::string> Version();

  // INTERNAL with the compiler's log if the source does not compile, or with how the child ended.
  // DEADLINE_EXCEEDED/EXECUTING if it was killed for having taken too long.
  absl::StatusOr<CompiledKernel> Compile(const std::string& source, const GpuArch& arch);

  // How many children there have been: for tests and metrics.
  int started() const { return started_; }

 private:
  absl::Status Start();
  absl::Status Spawn();
  absl::StatusOr<std::string> ReadFrame(absl::Time until);
  absl::Status Read(char* to, size_t bytes, absl::Time until);
  absl::Status Write(absl::string_view bytes, absl::Time until);
  absl::Status Await(short events, absl::Time until);
  // How the child, which has closed its end of the stream, has ended; it is reaped, and killed if
  // it does not end.
  absl::Status Ended(absl::Time until);
  void Kill();

  const Options options_;
  pid_t pid_ = -1;
  UniqueFd stream_;
  std::string version_;
  int started_ = 0;
};

}  // namespace ferry::compute
