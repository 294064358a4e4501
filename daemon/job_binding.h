// SPDX-License-Identifier: Apache-2.0
// Finds the program of each run of a batch, the memory of each of its buffers, the transfers that
// it makes and the prepared ones that it is joined to, and all that is wrong with them: names,
// sizes, types, bytes that are written and used twice, batches that cannot be joined. Home:
// control.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/compiled_program.h"
#include "daemon/post.h"
#include "daemon/session.h"

namespace ferry {

struct BoundJob {
  std::shared_ptr<const CompiledProgram> program;  // null: something is wrong with the run
  std::vector<Range> memory;                       // by buffer
  // A prepared batch of transfers that the job fires.
  struct Joined {
    uint32_t number = 0;
    // The step of the plan after which nothing needs its bytes any more; nothing: no step does.
    std::optional<size_t> step;
  };
  std::vector<Joined> joined = {};
  // Of a posted run what its program sends and receives, in the program's order. Those that are in
  // its own memory have no layout yet.
  std::vector<TransferSpec> transfers = {};
};

// By run. That ranges lie in arenas of the session, it has checked.
std::vector<BoundJob> BindJobs(const Session& session, const PostBatch& batch, ProgramCache& cache,
                               std::vector<Violation>& violations);

}  // namespace ferry
