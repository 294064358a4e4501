// SPDX-License-Identifier: Apache-2.0
// JobTable's jobs at the compute thread: which is handed to it next, and which are taken back, put
// aside or stopped.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "daemon/job_table.h"

namespace ferry {

void JobTable::Pump() {
  for (AtRunner& place : at_runner_) {
    if (ready_.empty() || place.state() != AtRunner::State::kFree) continue;
    Job& job = static_cast<Job&>(*ready_.Next());
    ready_.Serve(job.left());
    Hand(job, place);
  }
  ShareOut();
}

void JobTable::ShareOut() {
  if (handed_.empty()) return homes_.runner.SetPostedWait(0, 0);
  Job& first = *handed_.front();
  Job* next = handed_.size() > 1 ? handed_.back() : nullptr;
  // A job that is put aside is not overtaken by others of its session, which may use its memory.
  if (next != nullptr && next->session() == first.session() && ready_.HasOthers(first.session())) {
    TakeBack(*next);
    next = handed_.size() > 1 ? next : nullptr;
  }
  const bool others =
      next != nullptr ? next->session() != first.session() : ready_.HasOthers(first.session());
  first.others.store(others, std::memory_order_relaxed);
  if (next != nullptr) {  // the first job may be put aside for this one
    next->others.store(next->session() != first.session() || ready_.HasOthers(next->session()),
                       std::memory_order_relaxed);
  }
  constexpr uint64_t kSome = UINT64_MAX;  // no session has this id
  homes_.runner.SetPostedWait(first.session(), next != nullptr ? next->session()
                                               : others        ? kSome
                                                               : 0);
}

std::vector<absl::Span<std::byte>> JobTable::MemoryOf(const Job& job) {
  std::vector<absl::Span<std::byte>> memory;
  for (const Range& range : job.memory) {
    const Arena* arena = sessions_.FindArena(range.arena);
    FERRY_CHECK(arena != nullptr);  // the job pins its arenas
    memory.emplace_back(arena->mapping->data() + range.offset, range.length);
  }
  return memory;
}

size_t JobTable::CountAtRunner(AtRunner::State state) const {
  return static_cast<size_t>(
      std::count_if(at_runner_.begin(), at_runner_.end(),
                    [state](const AtRunner& place) { return place.state() == state; }));
}

void JobTable::Hand(Job& job, AtRunner& place) {
  job.state = State::kAtRunner;
  job.at_runner = &place;
  handed_.push_back(&job);
  place.Hand();
  size_t section = 0;
  absl::Span<std::byte> scratch;
  if (job.own) {
    section = job.own->section++;
    scratch = {sessions_.FindArena(job.own->memory)->mapping->data(), job.program->scratch_bytes()};
  }
  homes_.compute.Post([this, id = job.id, &place, bytes = job.spec.bytes, program = job.program,
                       device = job.device->id, memory = MemoryOf(job), section, scratch,
                       step_over = DefineByStep(job), stop = &job.stop, others = &job.others] {
    std::optional<absl::Status> status;
    uint64_t left = 0;
    if (place.Begin()) {
      FlightRecorder::Get().Record("job.run", id, bytes, program->scratch_bytes(),
                                   absl::StrCat("device ", device.value()));
      status = homes_.runner.Run({id, *program, section, memory, scratch, step_over, stop, others},
                                 left);
    }
    homes_.control.PostOrRun([this, id, &place, status = std::move(status), left]() mutable {
      OnRan(id, place, std::move(status), left);
    });
  });
}

void JobTable::OnRan(TransferId id, AtRunner& place, std::optional<absl::Status> ran,
                     uint64_t left) {
  place.Free();
  if (!ran) return Pump();
  absl::Status status = *std::move(ran);
  Job& job = *jobs_.find(id)->second;
  std::erase(handed_, &job);
  if (left > 0) {
    job.aside = true;
    if (job.stopped_by.ok()) {
      if (job.own) --job.own->section;
      job.state = State::kReady;
      ready_.Return(job, left);
      return Pump();
    }
    status = Error(absl::StatusCode::kCancelled, Reason::kCancelled, "put aside between launches");
  }
  if (!job.stopped_by.ok() && !status.ok()) {
    status = WithText(job.stopped_by,
                      absl::StrCat(job.stopped_by.message(), "; it was ", status.message()));
    if (job.own) job.own->outcome = status;
  }
  if (!job.own) {
    End(job, std::move(status));
  } else {
    job.state = job.own->outcome ? State::kEnding : State::kWaiting;
    GoOn(job);
  }
  Pump();
}

void JobTable::TakeBack(Job& job) {
  if (job.state != State::kAtRunner || !job.at_runner->TakeBack()) return;
  std::erase(handed_, &job);
  if (job.own) --job.own->section;
  job.state = State::kReady;
  ready_.Add(job);
}

void JobTable::Stop(Job& job, absl::Status why) {
  job.stopped_by = std::move(why);
  job.stop.store(true, std::memory_order_relaxed);
}

}  // namespace ferry
