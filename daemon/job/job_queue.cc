// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/job_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {

using State = Job::State;

void JobQueue::Add(Job& job) {
  home_.Check();
  job.state = State::kReady;
  ready_.Add(job);
}

void JobQueue::Remove(Job& job) {
  home_.Check();
  if (job.state == State::kReady) ready_.Remove(job);
}

void JobQueue::Drop(const Job& job) {
  home_.Check();
  if (job.aside) homes_.compute.Post([this, id = job.id] { homes_.runner.Drop(id); });
}

void JobQueue::Pump() {
  home_.Check();
  for (AtRunner& place : at_runner_) {
    if (ready_.empty() || place.state() != AtRunner::State::kFree) continue;
    Job& job = static_cast<Job&>(*ready_.Next());
    ready_.Serve(job.left());
    Hand(job, place);
  }
  ShareOut();
}

void JobQueue::ShareOut() {
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

size_t JobQueue::CountAtRunner(AtRunner::State state) const {
  return static_cast<size_t>(
      std::count_if(at_runner_.begin(), at_runner_.end(),
                    [state](const AtRunner& place) { return place.state() == state; }));
}

void JobQueue::Hand(Job& job, AtRunner& place) {
  job.state = State::kAtRunner;
  job.at_runner = &place;
  handed_.push_back(&job);
  place.Hand();
  size_t section = 0;
  absl::Span<std::byte> scratch;
  if (job.own) {
    section = job.own->section++;
    scratch = hooks_.scratch(job);
  }
  homes_.compute.Post([this, id = job.id, &place, bytes = job.spec.bytes, program = job.program,
                       device = job.device->id, memory = hooks_.memory(job), section, scratch,
                       step_over = hooks_.step_over(job), stop = &job.stop, others = &job.others,
                       uid = job.spec.uid] {
    // The program stays until the run is over.
    const auto over = [this, id, &place, program](std::optional<absl::Status> status,
                                                  uint64_t left) {
      homes_.control.PostOrRun([this, id, &place, status = std::move(status), left]() mutable {
        OnRan(id, place, std::move(status), left);
      });
    };
    if (!place.Begin()) return over(std::nullopt, 0);
    FlightRecorder::Get().Record("job.run", id, bytes, program->scratch_bytes(),
                                 absl::StrCat("device ", device.value()));
    homes_.runner.Run(
        {id, *program, section, memory, scratch, step_over, stop, others, nullptr, uid}, over);
  });
}

void JobQueue::OnRan(TransferId id, AtRunner& place, std::optional<absl::Status> ran,
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
  hooks_.ran(job, std::move(status));
  Pump();
}

void JobQueue::TakeBack(Job& job) {
  home_.Check();
  if (job.state != State::kAtRunner || !job.at_runner->TakeBack()) return;
  std::erase(handed_, &job);
  if (job.own) --job.own->section;
  Add(job);
}

}  // namespace ferry
