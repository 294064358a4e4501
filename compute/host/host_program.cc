// SPDX-License-Identifier: Apache-2.0
#include "compute/host/host_program.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/host/step_builder.h"

namespace ferry::compute {

absl::StatusOr<HostProgram> HostProgram::Make(const Program& program, size_t threads) {
  HostProgram made;
  made.threads_ = threads;
  ASSIGN_OR_RETURN(made.plan_, MakePlan(program));
  StepBuilder(made).Build();
  return made;
}

void HostProgram::RunSteps(size_t begin, size_t end,
                           absl::Span<const absl::Span<std::byte>> buffers,
                           absl::Span<std::byte> arena, Workers* workers, const StepOver& step_over,
                           Kept* kept) const {
  const RunMemory memory{buffers, arena.data(), constants_.data()};
  Kept own{arena.subspan(kept == nullptr ? arena_bytes_ : 0), {}};  // of this run alone
  Kept& made = kept == nullptr ? own : *kept;
  made.ready.resize(keepers_, false);
  for (size_t step = begin; step < end; ++step) {
    const size_t first = step == 0 ? 0 : ends_[step - 1];
    RunAll(absl::MakeConstSpan(works_).subspan(first, ends_[step] - first), memory, workers, made);
    if (step_over) step_over(step);
  }
}

void HostProgram::RunAll(absl::Span<const Work> works, const RunMemory& memory, Workers* workers,
                         Kept& kept) const {
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
        if (work.product == nullptr) {
          RunWholeOp(work.whole, in, out);
          break;
        }
        const bool keeps = work.keeper.has_value();
        work.product->Run(in, out[0], memory.Write(work.scratch),
                          keeps ? kept.memory.data() + work.kept_offset : nullptr,
                          keeps && kept.ready[*work.keeper], workers);
        if (keeps) kept.ready[*work.keeper] = true;
        break;
      }
      case Work::Kind::kCopy:
        std::memmove(memory.Write(work.out[0]), memory.Read(work.in[0]), work.bytes);
        break;
      case Work::Kind::kRepeat:
        for (int64_t trip = 0; trip < work.trips; ++trip) {
          const auto count = static_cast<int32_t>(trip);
          if (!work.out.empty()) std::memcpy(memory.Write(work.out[0]), &count, sizeof(count));
          RunAll(work.body, memory, workers, kept);
        }
        break;
    }
  }
}

void HostProgram::AddProductMakers(absl::Span<const Work> works,
                                   std::vector<std::pair<uint32_t, std::string>>& makers) {
  for (const Work& work : works) {
    if (work.product != nullptr) makers.push_back({work.step, work.product->Text()});
    AddProductMakers(work.body, makers);
  }
}

std::vector<std::pair<uint32_t, std::string>> HostProgram::ProductMakers() const {
  std::vector<std::pair<uint32_t, std::string>> makers;
  AddProductMakers(works_, makers);
  return makers;
}

}  // namespace ferry::compute
