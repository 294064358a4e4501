// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/computer.h"

#include <errno.h>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

absl::Status HostComputer::Do(const Run& run) {
  home_.Check();
  return run.program.host->RunSteps(
      run.program.BeginOf(run.section), run.program.sections[run.section].end, run.may_go_on,
      run.memory, run.scratch, &workers_, run.step_over, run.from_constants, &run.aside);
}

absl::StatusOr<std::byte*> HostComputer::Make(uint64_t bytes) {
  home_.Check();
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped != MAP_FAILED) return static_cast<std::byte*>(mapped);
  return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                    absl::StrCat("map ", bytes, " bytes for a job"), errno);
}

void HostComputer::Free(std::byte* memory, uint64_t bytes) { munmap(memory, bytes); }

absl::Status GpuComputer::Do(const Run& run) {
  home_.Check();
  compute::GpuMachine::Aside aside{run.aside.wanted, run.aside.put, run.aside.step};
  const absl::Status status = machine_.Run(*run.program.gpu, run.program.BeginOf(run.section),
                                           run.program.sections[run.section].end, run.may_go_on,
                                           run.memory, run.scratch, run.step_over, aside);
  run.aside.put = aside.put;
  run.aside.step = aside.step;
  return status;
}

absl::StatusOr<std::byte*> GpuComputer::Make(uint64_t bytes) {
  home_.Check();
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory, machine_.Allocate(bytes));
  std::byte* const at = memory->data();
  scratch_[at] = std::move(memory);
  return at;
}

void GpuComputer::Free(std::byte* memory, uint64_t) { scratch_.erase(memory); }

void GpuComputer::LetGo() {
  home_.Check();
  machine_.Close();
}

}  // namespace ferry
