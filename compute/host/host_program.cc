// SPDX-License-Identifier: Apache-2.0
#include "compute/host/host_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/host/step_builder.h"
#include "compute/passes/passes.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kCopiedAtOnce = uint64_t{64} << 20;

}  // namespace

absl::StatusOr<HostProgram> HostProgram::Make(const Program& program, const HostOptions& options) {
  HostProgram made;
  made.options_ = options;
  ASSIGN_OR_RETURN(made.plan_, MakePlan(FillEmpty(program, options.poison)));
  StepBuilder(made).Build();
  return made;
}

void HostProgram::Run(absl::Span<const absl::Span<std::byte>> buffers, absl::Span<std::byte> arena,
                      Workers* workers, const StepOver& step_over, Kept* kept) const {
  const absl::Status status = RunWhile(nullptr, buffers, arena, workers, step_over, kept);
  FERRY_CHECK(status.ok());
}

absl::Status HostProgram::RunWhile(const RunControl::MayGoOn& may_go_on,
                                   absl::Span<const absl::Span<std::byte>> buffers,
                                   absl::Span<std::byte> arena, Workers* workers,
                                   const StepOver& step_over, Kept* kept) const {
  if (options_.poison) std::fill(arena.begin(), arena.end(), std::byte{0xFF});
  return RunSteps(0, ends_.size(), may_go_on, buffers, arena, workers, step_over, kept);
}

absl::Status HostProgram::RunSteps(size_t begin, size_t end, const RunControl::MayGoOn& may_go_on,
                                   absl::Span<const absl::Span<std::byte>> buffers,
                                   absl::Span<std::byte> arena, Workers* workers,
                                   const StepOver& step_over, Kept* kept) const {
  RunControl control(may_go_on);
  Kept own{arena.subspan(kept == nullptr ? arena_bytes_ : 0), {}};  // of this run alone
  Kept& made = kept == nullptr ? own : *kept;
  const RunMemory memory{buffers, arena.data(), constants_.data(), made.memory.data(), &control};
  made.ready.resize(keepers_, false);
  for (size_t step = begin; step < end; ++step) {
    const size_t first = step == 0 ? 0 : ends_[step - 1];
    RunAll(absl::MakeConstSpan(works_).subspan(first, ends_[step] - first), memory, workers, made);
    if (control.stopped()) {
      return Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                   absl::StrCat("stopped in step ", plan_.steps[step].number, " of the plan"));
    }
    if (step_over) step_over(step);
  }
  return absl::OkStatus();
}

void HostProgram::RunAll(absl::Span<const Work> works, const RunMemory& memory, Workers* workers,
                         Kept& kept) const {
  for (const Work& work : works) {
    if (memory.control->Stops()) return;
    switch (work.kind) {
      case Work::Kind::kGroup:
        if (work.keeper && kept.ready[*work.keeper]) break;
        work.group.Run(memory, memory.Write(work.scratch), options_.threads, workers);
        if (work.keeper && !memory.control->stopped()) kept.ready[*work.keeper] = true;
        break;
      case Work::Kind::kWhole: {
        std::vector<const std::byte*> in;
        for (const Location& at : work.in) in.push_back(memory.Read(at));
        std::vector<std::byte*> out;
        for (const Location& at : work.out) out.push_back(memory.Write(at));
        if (work.product == nullptr) {
          RunWholeOp(work.whole, in, out, *memory.control);
          break;
        }
        const bool keeps = work.keeper.has_value();
        work.product->Run(in, out[0], memory.Write(work.scratch),
                          keeps ? kept.memory.data() + work.kept_offset : nullptr,
                          keeps && kept.ready[*work.keeper], workers, *memory.control);
        if (keeps) kept.ready[*work.keeper] = true;
        break;
      }
      case Work::Kind::kCopy:
        for (uint64_t at = 0; at < work.bytes && !memory.control->Stops(); at += kCopiedAtOnce) {
          std::memcpy(memory.Write(work.out[0]) + at, memory.Read(work.in[0]) + at,
                      std::min(kCopiedAtOnce, work.bytes - at));
        }
        break;
      case Work::Kind::kRepeat:
        for (int64_t trip = 0; trip < work.trips && !memory.control->stopped(); ++trip) {
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
