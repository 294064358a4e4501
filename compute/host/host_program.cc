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

void HostProgram::Run(absl::Span<const absl::Span<std::byte>> buffers,
                      absl::Span<std::byte> scratch, Workers* workers, const StepOver& step_over,
                      FromConstants* from_constants) const {
  const absl::Status status =
      RunWhile(nullptr, buffers, scratch, workers, step_over, from_constants);
  FERRY_CHECK(status.ok());
}

absl::Status HostProgram::RunWhile(const RunControl::MayGoOn& may_go_on,
                                   absl::Span<const absl::Span<std::byte>> buffers,
                                   absl::Span<std::byte> scratch, Workers* workers,
                                   const StepOver& step_over, FromConstants* from_constants) const {
  if (options_.poison) std::fill(scratch.begin(), scratch.end(), std::byte{0xFF});
  return RunSteps(0, ends_.size(), may_go_on, buffers, scratch, workers, step_over, from_constants);
}

absl::Status HostProgram::RunSteps(size_t begin, size_t end, const RunControl::MayGoOn& may_go_on,
                                   absl::Span<const absl::Span<std::byte>> buffers,
                                   absl::Span<std::byte> scratch, Workers* workers,
                                   const StepOver& step_over, FromConstants* from_constants,
                                   Aside* aside) const {
  RunControl control(may_go_on);
  FromConstants own{scratch.subspan(from_constants == nullptr ? scratch_bytes_ : 0),
                    {}};  // of this run alone
  FromConstants& made = from_constants == nullptr ? own : *from_constants;
  const RunMemory memory{buffers, scratch.data(), constants_.data(), made.memory.data(), &control};
  made.ready.resize(keepers_, false);
  Aside never;
  Running run{memory, workers, made, aside == nullptr ? never : *aside};
  size_t& step = run.aside.step;
  if (!std::exchange(run.aside.put, false)) step = begin;
  for (; step < end; ++step) {
    RunAll(WorksOf(step), run, 0);
    if (control.stopped()) {
      return Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                   absl::StrCat("stopped in step ", plan_.steps[step].number, " of the plan"));
    }
    if (run.aside.put) return absl::OkStatus();
    if (step_over) step_over(step);
  }
  return absl::OkStatus();
}

void HostProgram::RunAll(absl::Span<const Work> works, Running& run, size_t depth) const {
  auto& places = run.aside.places;
  if (places.size() == depth) places.emplace_back();
  for (; places[depth].part < works.size(); places[depth] = {places[depth].part + 1, 0}) {
    const bool inside = places.size() > depth + 1;  // where it was put aside
    if (run.memory.control->Stops()) return;
    if (!inside && run.aside.wanted && run.aside.wanted()) {
      run.aside.put = true;
      return;
    }
    const Work& work = works[places[depth].part];
    if (work.kind == Work::Kind::kRepeat) {
      Repeat(work, run, depth, inside);
    } else {
      RunOne(work, run);
    }
    if (run.aside.put) return;
  }
  places.pop_back();
}

void HostProgram::Repeat(const Work& work, Running& run, size_t depth, bool inside) const {
  while (run.aside.places[depth].trip < work.trips && !run.memory.control->stopped()) {
    const auto count = static_cast<int32_t>(run.aside.places[depth].trip);
    // Within a trip something else may be there already.
    if (!inside && !work.out.empty()) {
      std::memcpy(run.memory.Write(work.out[0]), &count, sizeof(count));
    }
    inside = false;
    RunAll(work.body, run, depth + 1);
    if (run.aside.put) return;
    ++run.aside.places[depth].trip;
  }
}

void HostProgram::RunOne(const Work& work, Running& run) const {
  const RunMemory& memory = run.memory;
  FromConstants& from_constants = run.from_constants;
  switch (work.kind) {
    case Work::Kind::kFusion:
      if (work.keeper && from_constants.ready[*work.keeper]) break;
      work.fusion.Run(memory, memory.Write(work.scratch), options_.threads, run.workers);
      if (work.keeper && !memory.control->stopped()) from_constants.ready[*work.keeper] = true;
      break;
    case Work::Kind::kWhole: {
      std::vector<const std::byte*> in;
      for (const Location& at : work.in) in.push_back(memory.Read(at));
      std::vector<std::byte*> out;
      for (const Location& at : work.out) out.push_back(memory.Write(at));
      const bool keeps = work.keeper.has_value();
      if (work.product == nullptr) {
        if (keeps && from_constants.ready[*work.keeper]) break;
        RunWholeOp(work.whole, in, out, run.workers, *memory.control);
        if (keeps && !memory.control->stopped()) from_constants.ready[*work.keeper] = true;
        break;
      }
      work.product->Run(in, out[0], memory.Write(work.scratch),
                        keeps ? from_constants.memory.data() + work.from_constants_offset : nullptr,
                        keeps && from_constants.ready[*work.keeper], run.workers, *memory.control);
      if (keeps) from_constants.ready[*work.keeper] = true;
      break;
    }
    case Work::Kind::kCopy:
      for (uint64_t at = 0; at < work.bytes && !memory.control->Stops(); at += kCopiedAtOnce) {
        std::memcpy(memory.Write(work.out[0]) + at, memory.Read(work.in[0]) + at,
                    std::min(kCopiedAtOnce, work.bytes - at));
      }
      break;
    case Work::Kind::kRepeat:
      break;  // see Repeat
  }
}

double HostProgram::DoneOfStep(const Aside& aside) const {
  absl::Span<const Work> works = WorksOf(aside.step);
  double done = 0;
  double share = 1;  // of the step, that `works` are
  for (const Aside::Place& place : aside.places) {
    if (works.empty()) break;
    share /= static_cast<double>(works.size());
    done += share * static_cast<double>(place.part);
    if (place.part == works.size() || works[place.part].trips == 0) break;
    share /= static_cast<double>(works[place.part].trips);
    done += share * static_cast<double>(place.trip);
    works = works[place.part].body;
  }
  return done;
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
