// SPDX-License-Identifier: Apache-2.0
// A compute program run over files: by this process's CPU, or by the daemon. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "compute/host/host_program.h"
#include "compute/program/program.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

// `bindings` are NAME=PATH, one for each buffer of `program`, which Verify accepts. What it reads
// comes from files of just the buffers' sizes; what it writes takes the place of files when all is
// done, beginning with zeros where it is not read. A file that is written is bound once.
// INVALID_ARGUMENT if it sends or receives.
absl::Status RunProgram(const compute::Program& program, const std::vector<std::string>& bindings,
                        size_t threads, bool poison = false);

// The same of a program's text, run by the daemon.
struct DaemonRun {
  std::string text;
  int64_t device = -1;  // its host device; -1: the first
  std::vector<std::string> bindings;
  // NAME=DEVICE:KEY, of buffers that have no file: sent to that device once the job has made them,
  // or received from it before the job begins.
  std::vector<std::string> sends, receives;
  std::vector<std::string> peers;  // NAME=DEVICE, of those that the program names itself
  std::string key_suffix;
  std::optional<absl::Duration> deadline;  // of the job and what it is joined to; else the daemon's
};
absl::Status RunProgramByDaemon(const Globals& globals, const DaemonRun& run);

// What is shared with `bench`: memory for runs, aligned (RESOURCE_EXHAUSTED names `what` it is
// for); as many bytes as `bytes`, and so many more that what follows begins where memory should.
struct FreeRunMemory {
  void operator()(std::byte* memory) const;
};
using RunMemory = std::unique_ptr<std::byte, FreeRunMemory>;
absl::StatusOr<RunMemory> AllocateRun(const std::string& what, uint64_t bytes);
uint64_t PlaceOf(uint64_t bytes);
// RESOURCE_EXHAUSTED if a run, with `buffers` bytes of buffers, asks for more than the machine has
// to give now: an allocation may succeed all the same, and its pages kill the process.
absl::Status CheckMemory(const compute::HostProgram& made, uint64_t buffers);
// INVALID_ARGUMENT if it sends or receives, which ends with `advice`; `doing` as in "run a
// program".
absl::Status CheckNoTransfers(const compute::Program& program, absl::string_view doing,
                              absl::string_view advice);

// What both do about files. `moved` are the buffers that have none. `allocate` makes the memory of
// all buffers, `run` is given what of it is each one's.
absl::Status RunOverFiles(
    const std::vector<compute::Buffer>& buffers, const std::vector<std::string>& bindings,
    const std::set<std::string>& moved,
    const std::function<absl::StatusOr<std::byte*>(uint64_t bytes)>& allocate,
    const std::function<absl::Status(const std::vector<absl::Span<std::byte>>&)>& run);

}  // namespace ferry::tools
