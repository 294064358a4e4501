// SPDX-License-Identifier: Apache-2.0
// Runs a compute program over files, on this process's CPU or by the daemon. Any thread.
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

// Runs `program`, which Verify must accept, on this process's CPU. `bindings` are NAME=PATH, one
// for each buffer. A buffer that is read comes from a file of exactly its size. A buffer that is
// written replaces its file when all is done; where it is not read it begins with zeros. A file
// that is written may be bound only once. INVALID_ARGUMENT if the program sends or receives.
absl::Status RunProgram(const compute::Program& program, const std::vector<std::string>& bindings,
                        size_t threads, bool poison = false);

// A run of a program's text by the daemon.
struct DaemonRun {
  std::string text;
  int64_t device = -1;  // a device of the daemon; -1: its first
  std::vector<std::string> bindings;
  // NAME=DEVICE:KEY, for buffers without a file: sent to that device once the job has made them, or
  // received from it before the job begins.
  std::vector<std::string> sends, receives;
  std::vector<std::string> peers;  // NAME=DEVICE, for the peers that the program itself names
  std::string key_suffix;
  // Deadline of the job and its transfers; nothing: the daemon's default.
  std::optional<absl::Duration> deadline;
};
absl::Status RunProgramByDaemon(const Globals& globals, const DaemonRun& run);

// Shared with `bench`. AllocateRun returns aligned memory of `bytes`; RESOURCE_EXHAUSTED says for
// `what` it was. PlaceOf rounds `bytes` up so that what follows is aligned too.
struct FreeRunMemory {
  void operator()(std::byte* memory) const;
};
using RunMemory = std::unique_ptr<std::byte, FreeRunMemory>;
absl::StatusOr<RunMemory> AllocateRun(const std::string& what, uint64_t bytes);
uint64_t PlaceOf(uint64_t bytes);
// RESOURCE_EXHAUSTED if a run, whose buffers have `buffers` bytes, needs more memory than the
// machine has now. The allocation might succeed all the same, and touching its pages would kill the
// process.
absl::Status CheckMemory(const compute::HostProgram& made, uint64_t buffers);
// INVALID_ARGUMENT if the program sends or receives. The error begins with `doing`, such as "run a
// program", and ends with `advice`.
absl::Status CheckNoTransfers(const compute::Program& program, absl::string_view doing,
                              absl::string_view advice);

// What both kinds of run do about files. `moved` names the buffers without a file. `allocate`
// returns the memory of all buffers; `run` is given the part of each buffer.
absl::Status RunOverFiles(
    const std::vector<compute::Buffer>& buffers, const std::vector<std::string>& bindings,
    const std::set<std::string>& moved,
    const std::function<absl::StatusOr<std::byte*>(uint64_t bytes)>& allocate,
    const std::function<absl::Status(const std::vector<absl::Span<std::byte>>&)>& run);

}  // namespace ferry::tools
