// SPDX-License-Identifier: Apache-2.0
// Programs made ready to be run, and kept for whoever runs them next. The one place of the daemon
// that calls the executor of programs. A CompiledProgram is immutable, for any thread, and shared:
// by the cache, and by jobs that run it although the cache has forgotten it. The cache's home:
// control.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/host/host_program.h"
#include "compute/plan/transfers.h"
#include "compute/program/cost.h"
#include "compute/program/program.h"
#include "daemon/post.h"

namespace ferry {

// What a job may cost, and how many threads it is run by.
struct JobLimits {
  uint64_t bytes = uint64_t{4} << 30;  // of memory beside its buffers
  uint64_t flops = uint64_t{1} << 42;  // and what counts with them: compute::WorkOf
  size_t threads = 1;  // a part of what is compiled: memory and last bits depend on it
  uint64_t launch_flops = compute::kLaunchFlops;  // that it may cost between two looks at `stop`
};

// Its text, or the graph.
using ProgramSource = std::variant<std::string, compute::Program>;

struct CompiledProgram {
  std::string fingerprint;  // 32 bytes
  std::vector<compute::Buffer> buffers;
  absl::flat_hash_map<std::string, size_t> by_name;  // indices of `buffers`
  std::vector<uint32_t> types;  // by buffer: bit t, ops read or write elements of DType t there
  std::vector<compute::LastUse> last_uses;  // by buffer
  std::vector<compute::PlanTransfer> transfers;
  std::vector<compute::Stage> stages;  // one, if there are no transfers
  compute::Cost cost;
  uint64_t work = 0;  // of the plan's steps: what a run counts for limits and shares
  std::vector<uint64_t> work_by_step;
  size_t ops = 0;
  // As text, without labels: programs of others that do the same may have other ones.
  std::string plan;
  compute::HostProgram host;

  uint64_t scratch_bytes() const { return host.arena_bytes(); }
  // Of that, what a prepared job may keep from firing to firing: what is made of constant buffers.
  uint64_t kept_bytes() const { return host.kept_bytes(); }
  // Runs the steps of a stage; those before are over. `memory` by buffer, of its size, and nobody
  // else's but for what is only read. The scratch is aligned to 64, and the same for all stages;
  // with `kept` it may have kept_bytes() less. `workers` are as many as it was compiled for;
  // without them one thread does all. CANCELLED, with how far it has got, if `may_go_on` says no
  // before a launch. OK, too, if it was put aside.
  absl::Status Run(size_t stage, absl::Span<const absl::Span<std::byte>> memory,
                   absl::Span<std::byte> scratch, compute::Workers* workers = nullptr,
                   const compute::HostProgram::StepOver& step_over = nullptr,
                   const compute::RunControl::MayGoOn& may_go_on = nullptr,
                   compute::HostProgram::Kept* kept = nullptr,
                   compute::HostProgram::Aside* aside = nullptr) const;
  // Of `work`, what is left of a run that was put aside; not 0.
  uint64_t WorkLeft(const compute::HostProgram::Aside& aside) const;
};

struct CompileResult {
  absl::Status status;
  std::vector<Violation> violations;               // every problem of the program, if there are any
  std::shared_ptr<const CompiledProgram> program;  // if it went well
  std::string plan;                                // with the labels of this one
};

// Takes its time: not on control.
CompileResult CompileProgram(const ProgramSource& source, const JobLimits& limits);

class ProgramCache {
 public:
  // Programs, and ops of all of them: the least recently used go first.
  static constexpr size_t kMostPrograms = 1024;
  static constexpr size_t kMostOps = size_t{1} << 18;

  // The one that is kept from now on: `program`, or an equal one that was there.
  std::shared_ptr<const CompiledProgram> Add(std::shared_ptr<const CompiledProgram> program);
  // Null if it is not kept.
  std::shared_ptr<const CompiledProgram> Find(const std::string& fingerprint);
  // Most recently used first.
  const std::list<std::shared_ptr<const CompiledProgram>>& programs() const { return programs_; }

 private:
  using Programs = std::list<std::shared_ptr<const CompiledProgram>>;
  Programs programs_;
  absl::flat_hash_map<std::string, Programs::iterator> by_fingerprint_;
  size_t ops_ = 0;
};

}  // namespace ferry
