// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/computer.h"

#include <errno.h>
#include <sys/mman.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

namespace {

// Where a run begins and, by now, ends, in steps.
class Steps {
 public:
  explicit Steps(const Computer::Run& run) : run_(run) {}
  size_t begin() const {
    return run_.sections == nullptr ? 0 : run_.program.BeginOf(run_.sections->first);
  }
  size_t end() {
    if (run_.sections != nullptr) end_ = run_.sections->end.load(std::memory_order_acquire);
    return run_.program.BeginOf(end_);
  }
  // The run has come to the end that was asked for last.
  void Done() const {
    if (run_.sections != nullptr) run_.sections->done.store(end_, std::memory_order_relaxed);
  }

 private:
  const Computer::Run& run_;
  size_t end_ = 1;
};

}  // namespace

absl::Status HostComputer::Do(const Run& run) {
  home_.Check();
  Steps steps(run);
  size_t begin = steps.begin();
  for (size_t end = steps.end(); begin < end; end = steps.end()) {
    RETURN_IF_ERROR(run.program.host->RunSteps(begin, end, run.may_go_on, run.memory, run.scratch,
                                               &workers_, run.step_over, run.from_constants,
                                               &run.aside));
    if (run.aside.put) return absl::OkStatus();
    begin = end;
  }
  steps.Done();
  return absl::OkStatus();
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
  Name& name = names_[(machine_.begun() + 1) % names_.size()];
  name.job.store(run.job.value(), std::memory_order_relaxed);
  name.uid.store(run.uid, std::memory_order_relaxed);
  for (size_t i = 0; i < name.program.size(); ++i) {
    uint64_t part = 0;
    std::memcpy(&part, run.program.fingerprint.data() + i * sizeof(part), sizeof(part));
    name.program[i].store(part, std::memory_order_relaxed);
  }
  compute::GpuMachine::Aside aside{run.aside.wanted, run.aside.put, run.aside.step};
  Steps steps(run);
  const absl::Status status = machine_.Run({.program = *run.program.gpu,
                                            .begin = steps.begin(),
                                            .end = [&steps] { return steps.end(); },
                                            .buffers = run.memory,
                                            .scratch = run.scratch,
                                            .may_go_on = run.may_go_on,
                                            .step_over = run.step_over,
                                            .receives = run.receives,
                                            .may_lag = run.may_lag},
                                           aside);
  run.aside.put = aside.put;
  run.aside.step = aside.step;
  if (status.ok() && !aside.put) steps.Done();
  return status;
}

std::string GpuComputer::FingerprintOf(const Name& name) {
  std::string fingerprint;
  for (const std::atomic<uint64_t>& part : name.program) {
    const uint64_t bytes = part.load(std::memory_order_relaxed);
    fingerprint.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  }
  return fingerprint;
}

std::string GpuComputer::UnderWay() const {
  const uint64_t begun = machine_.begun();
  std::string text;
  for (uint64_t number = machine_.current(); number <= begun; ++number) {
    const Name& name = NameOf(number);
    const TransferId job(name.job.load(std::memory_order_relaxed));
    absl::StrAppend(&text,
                    text.empty() ? absl::StrCat(device_.info().uuid_text(), " ran ") : ", then ",
                    "job ", SequenceOf(job), " of session ", SessionOf(job).value(), " (program ",
                    absl::BytesToHexString(FingerprintOf(name).substr(0, sizeof(uint64_t))), ")");
  }
  return text;
}

std::optional<GpuComputer::AtWork> GpuComputer::at_work() const {
  const uint64_t number = machine_.current();
  if (number > machine_.begun()) return std::nullopt;
  const Name& name = NameOf(number);
  return AtWork{TransferId(name.job.load(std::memory_order_relaxed)),
                name.uid.load(std::memory_order_relaxed), FingerprintOf(name)};
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
