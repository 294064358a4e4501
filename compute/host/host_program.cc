// SPDX-License-Identifier: Apache-2.0
#include "compute/host/host_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/host/step_builder.h"
#include "compute/passes/passes.h"

namespace ferry::compute {

absl::StatusOr<HostProgram> HostProgram::Make(const Program& program, size_t threads, bool poison) {
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const Op op = program.nodes[i].op;
    if (op != Op::kSend && op != Op::kRecv) continue;
    return Error(absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
                 absl::StrCat("make a program ready for the CPU: op ", i, " ", InfoOf(op).name,
                              ": a transfer is not run as a part of a program"));
  }
  HostProgram made;
  made.threads_ = threads;
  made.poison_ = poison;
  ASSIGN_OR_RETURN(made.plan_, MakePlan(FillEmpty(program, poison)));
  StepBuilder(made).Build();
  return made;
}

void HostProgram::Run(absl::Span<const absl::Span<std::byte>> buffers, absl::Span<std::byte> arena,
                      Workers* workers, const StepOver& step_over) const {
  const RunMemory memory{buffers, arena.data(), constants_.data()};
  if (poison_) std::fill(arena.begin(), arena.end(), std::byte{0xFF});
  if (!step_over) return RunAll(works_, memory, workers);
  size_t begin = 0;
  for (size_t step = 0; step < ends_.size(); ++step) {
    RunAll(absl::MakeConstSpan(works_).subspan(begin, ends_[step] - begin), memory, workers);
    begin = ends_[step];
    step_over(step);
  }
}

void HostProgram::RunAll(absl::Span<const Work> works, const RunMemory& memory,
                         Workers* workers) const {
  for (const Work& work : works) {
    switch (work.kind) {
      case Work::Kind::kGroup:
        work.group.Run(memory, memory.Write(work.scratch), threads_, workers);
        break;
      case Work::Kind::kWhole: {
        std::vector<const std::byte*> in;
        for (const Location& at : work.in) in.push_back(memory.Read(at));
        std::vector<std::byte*> out;
        for (const Location& at : work.out) out.push_back(memory.Write(at));
        std::byte* scratch = memory.Write(work.scratch);
        if (work.product == nullptr || !work.product->Run(in[0], in[1], out[0], scratch, workers)) {
          RunWholeOp(work.whole, in, out, scratch);
        }
        break;
      }
      case Work::Kind::kCopy:
        std::memmove(memory.Write(work.out[0]), memory.Read(work.in[0]), work.bytes);
        break;
      case Work::Kind::kRepeat:
        for (int64_t trip = 0; trip < work.trips; ++trip) {
          const auto count = static_cast<int32_t>(trip);
          if (!work.out.empty()) std::memcpy(memory.Write(work.out[0]), &count, sizeof(count));
          RunAll(work.body, memory, workers);
        }
        break;
    }
  }
}

}  // namespace ferry::compute
