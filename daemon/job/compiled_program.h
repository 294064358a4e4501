// SPDX-License-Identifier: Apache-2.0
// Programs that are compiled, and a cache of them. This is the one place of the daemon that calls
// the executor of programs. A CompiledProgram is immutable, for any thread, and shared: by the
// cache, and by jobs that run it after the cache has dropped it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "compute/cuda/compile/kernel_store.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/run/gpu_multiplier.h"
#include "compute/cuda/run/gpu_program.h"
#include "compute/host/host_program.h"
#include "compute/plan/transfers.h"
#include "compute/program/cost.h"
#include "compute/program/program.h"
#include "daemon/job/barred_programs.h"
#include "daemon/job/time_quota.h"
#include "daemon/post.h"

namespace ferry {

// What one job may cost, and how many threads compute it.
struct JobLimits {
  uint64_t bytes = uint64_t{4} << 30;  // most memory beside the job's buffers, in bytes
  // Most operations of a run, bytes moved included: CompiledProgram::work
  uint64_t flops = uint64_t{1} << 42;
  size_t threads = 1;  // part of what is compiled: memory, and last bits of results, depend on it
  uint64_t launch_flops = compute::kLaunchFlops;  // most operations between two looks at `stop`
  uint64_t gpu_launch_flops = uint64_t{1} << 41;  // most operations of a launch of a GPU
  // Each user's share of each GPU's time, for each second.
  absl::Duration gpu_time = TimeQuotas::kNoLimit;
};

// A program's text, or its graph.
using ProgramSource = std::variant<std::string, compute::Program>;

// The sections of a program that one run of a compute thread does, one after the other: from
// `first` on, as far as the transfers are over that they await. The control thread raises `end`
// while the run is under way, and the run goes on with the sections that this adds. Example: of
// four sections `first` is 1 and `end` is 2; section 2 may run too once `end` is 3.
struct Sections {
  size_t first = 0;            // set before the run begins
  std::atomic<size_t> end{1};  // the first section that may not run yet
  // The first section that has not run. The compute thread stores it when the run has gone well.
  std::atomic<size_t> done{0};
};

// A program that is ready to run on this daemon.
struct CompiledProgram {
  std::string fingerprint;  // 32 bytes
  std::string target;       // what runs it: Target::name, or own_name if only that GPU does
  std::vector<compute::Buffer> buffers;
  // From a buffer's name to its index in `buffers`
  absl::flat_hash_map<std::string, size_t> by_name;
  // By buffer: bit t is set if ops read or write elements of DType t there.
  std::vector<uint32_t> types;
  std::vector<compute::LastUse> last_uses;  // by buffer
  std::vector<compute::PlanTransfer> transfers;
  std::vector<compute::Section> sections;  // one section if the program has no transfers
  compute::Cost cost;
  // What a run counts for limits and shares: the work of all steps, that of a GPU's tensor cores
  // divided by GpuArch::tensor_speed.
  uint64_t work = 0;
  std::vector<uint64_t> work_by_step;
  size_t ops = 0;
  // The plan as text, without labels: an equal program of somebody else may have other labels.
  std::string plan;
  // Who runs it: exactly one of the two is set.
  std::optional<compute::HostProgram> host;
  std::optional<compute::GpuProgram> gpu;

  const compute::Plan& steps() const { return host ? host->plan() : gpu->plan().plan; }
  // Memory that a run needs beside its buffers, in bytes.
  uint64_t scratch_bytes() const { return host ? host->scratch_bytes() : gpu->scratch_bytes(); }
  // The part of the scratch that a prepared job may keep from firing to firing: what is made of
  // constant buffers.
  uint64_t from_constants_bytes() const { return host ? host->from_constants_bytes() : 0; }
  // Whether it receives by itself.
  bool receives() const {
    return std::any_of(transfers.begin(), transfers.end(),
                       [](const compute::PlanTransfer& transfer) { return !transfer.sends; });
  }
  // The first step of a section.
  size_t BeginOf(size_t section) const { return section == 0 ? 0 : sections[section - 1].end; }
  // The first section, from `section` on, that awaits a transfer that is not `over`, by index; the
  // number of sections if there is none.
  size_t FirstUnready(size_t section, const std::vector<bool>& over) const;
  // The part of `work` that is left of a run that was put aside; not 0.
  uint64_t WorkLeft(const compute::HostProgram::Aside& aside) const;
};

// What a program is compiled for: the CPU, or GPUs of one architecture.
struct Target {
  std::optional<compute::GpuArch> gpu;
  compute::KernelStore* kernels = nullptr;  // set if `gpu` is; used on the compiler's thread alone
  // Programs that are not to run there; null: all may.
  const BarredPrograms* barred = nullptr;
  // Who multiplies matrices on the GPU that the program is compiled for; null: our own kernels do.
  // Used as `kernels`.
  compute::GpuMultiplier* multiplier = nullptr;
  std::string uuid;  // of that GPU, as nvidia-smi prints it

  std::string name() const { return gpu ? std::string(gpu->name) : "host"; }
  // For programs that no other GPU of the architecture may run.
  std::string own_name() const { return uuid.empty() ? name() : name() + " " + uuid; }
};

struct CompileResult {
  absl::Status status;
  std::vector<Violation> violations;               // all that is wrong with the program
  std::shared_ptr<const CompiledProgram> program;  // null if something is wrong
  std::string plan;                                // with the labels of the source that was given
};

// Takes long: must not be called on control.
CompileResult CompileProgram(const ProgramSource& source, const JobLimits& limits,
                             const Target& target = {});

// Keeps compiled programs by fingerprint and target, within the bounds below. Home: control.
class ProgramCache {
 public:
  // The most programs, and the most ops of all programs together. The least recently used program
  // is dropped first.
  static constexpr size_t kMostPrograms = 1024;
  static constexpr size_t kMostOps = size_t{1} << 18;

  // Keeps `program`, or an equal program that is kept already; returns the one that is kept.
  std::shared_ptr<const CompiledProgram> Add(std::shared_ptr<const CompiledProgram> program);
  // Null if no program of this fingerprint is kept for this target.
  std::shared_ptr<const CompiledProgram> Find(const std::string& fingerprint,
                                              const std::string& target);
  // That for the target's own name, else that for its name.
  std::shared_ptr<const CompiledProgram> FindFor(const std::string& fingerprint,
                                                 const Target& target) {
    std::shared_ptr<const CompiledProgram> own = Find(fingerprint, target.own_name());
    return own != nullptr ? own : Find(fingerprint, target.name());
  }
  // Most recently used first.
  const std::list<std::shared_ptr<const CompiledProgram>>& programs() const { return programs_; }

 private:
  using Programs = std::list<std::shared_ptr<const CompiledProgram>>;
  Programs programs_;
  // By fingerprint and target.
  absl::flat_hash_map<std::pair<std::string, std::string>, Programs::iterator> by_key_;
  size_t ops_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
