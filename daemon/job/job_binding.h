// SPDX-License-Identifier: Apache-2.0
// Binds the runs of a batch: finds for each run its program, the memory of each of the program's
// buffers, the transfers that the run makes by itself, and the prepared batches that it is joined
// to. Reports everything that is wrong with them: names, sizes, types, bytes that are written and
// also used, batches that cannot be joined. Home: control.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/job/compiled_program.h"
#include "daemon/post.h"
#include "daemon/session/session.h"

namespace ferry {

struct BoundJob {
  std::shared_ptr<const CompiledProgram> program;  // null if something is wrong with the run
  std::vector<Range> memory;                       // by buffer
  // A prepared batch of transfers that the job fires.
  struct Joined {
    uint32_t number = 0;
    // The step of the plan after which no step needs the batch's bytes; nothing if no step needs
    // them.
    std::optional<size_t> step;
  };
  std::vector<Joined> joined = {};
  // For a posted run, what its program sends and receives, in the program's order. Transfers of the
  // job's own memory have no layout yet.
  std::vector<TransferSpec> transfers = {};
};

// One BoundJob for each run. That the ranges lie in arenas of the session was checked by the
// session.
// `target`: of the batch's device.
std::vector<BoundJob> BindJobs(const Session& session, const PostBatch& batch, ProgramCache& cache,
                               const Target& target, std::vector<Violation>& violations);

}  // namespace ferry
