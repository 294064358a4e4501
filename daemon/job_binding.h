// SPDX-License-Identifier: Apache-2.0
// Finds the program of each run of a batch, and the memory of each of its buffers, and all that is
// wrong with them: names, sizes, types, and bytes that are written and used twice. Home: control.
#pragma once

#include <memory>
#include <vector>

#include "daemon/compiled_program.h"
#include "daemon/post.h"
#include "daemon/session.h"

namespace ferry {

struct BoundJob {
  std::shared_ptr<const CompiledProgram> program;  // null: something is wrong with the run
  std::vector<Range> memory;                       // by buffer
};

// By run. That ranges lie in arenas of the session, it has checked.
std::vector<BoundJob> BindJobs(const Session& session, const PostBatch& batch, ProgramCache& cache,
                               std::vector<Violation>& violations);

}  // namespace ferry
