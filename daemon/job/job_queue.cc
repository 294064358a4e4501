// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/job_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "compute/program/cost.h"

namespace ferry {

using State = Job::State;

void JobQueue::Add(Job& job) {
  home_.Check();
  job.state = State::kReady;
  ready_.Add(job);
}

void JobQueue::Remove(Job& job) {
  home_.Check();
  if (job.state != State::kReady) return;
  ready_.Remove(job);
  std::erase(held_, &job);
}

bool JobQueue::IsHeld(const Job& job) const {
  return std::find(held_.begin(), held_.end(), &job) != held_.end();
}

absl::Time JobQueue::OnTime(absl::Time now) {
  home_.Check();
  absl::Time next = absl::InfiniteFuture();
  std::erase_if(held_, [&](Job* job) {
    if (job->quota->IsOver(now)) {
      next = std::min(next, job->quota->until());
      return false;
    }
    ready_.Add(*job);
    return true;
  });
  return next;
}

Job* JobQueue::Next() {
  while (!ready_.empty()) {
    Job& job = static_cast<Job&>(*ready_.Next());
    if (job.quota == nullptr || !job.quota->IsOver(homes_.control.Now())) return &job;
    ready_.Remove(job);
    held_.push_back(&job);
    homes_.control.Post([] {});  // after it OnTime is asked when to look again
  }
  return nullptr;
}

void JobQueue::Drop(const Job& job) {
  home_.Check();
  if (job.aside) homes_.compute.Post([this, id = job.id] { homes_.runner.Drop(id); });
}

bool JobQueue::MayHand(const Job& job) const {
  if (handed_.empty()) return true;
  if (!ahead()) {
    // Such a job would be taken back at once: see ShareOut.
    const uint64_t session = job.session();
    return handed_.front()->session() != session || !ready_.HasOthers(session);
  }
  if (handed_.size() < 2) return true;
  uint64_t work = job.left() > 0 ? job.left() : job.served;  // 0: it was handed before
  for (const Job* const handed : handed_) work = compute::SaturatingAdd(work, handed->served);
  return work <= homes_.runner.WorkIn(JobRunner::kSlice);
}

void JobQueue::Pump() {
  home_.Check();
  for (AtRunner& place : at_runner_) {
    if (place.state() != AtRunner::State::kFree) continue;
    Job* const job = Next();
    if (job == nullptr || !MayHand(*job)) break;
    // Of a job that was taken back nothing is left: its session was charged before.
    if (job->left() > 0) job->served = job->left();
    ready_.Serve(job->left());
    Hand(*job, place);
  }
  ShareOut();
}

void JobQueue::ShareOut() {
  if (handed_.empty()) return homes_.runner.SetPostedWait(0, 0);
  const uint64_t first = handed_.front()->session();
  const auto is_other = [first](const Job* job) { return job->session() != first; };
  const auto other = std::find_if(handed_.begin(), handed_.end(), is_other);
  const bool mixed = other != handed_.end();
  // A job that is put aside is not overtaken by others of its session, which may use its memory;
  // what is queued ahead JobRunner does not begin then.
  if (!mixed && !ahead() && handed_.size() > 1 && ready_.HasOthers(first)) TakeBack(*handed_[1]);
  for (Job* const job : handed_) {
    job->others.store(mixed || ready_.HasOthers(job->session()), std::memory_order_relaxed);
  }
  constexpr uint64_t kSome = UINT64_MAX;  // no session has this id
  homes_.runner.SetPostedWait(first, mixed                     ? (*other)->session()
                                     : ready_.HasOthers(first) ? kSome
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
  Sections* sections = nullptr;
  absl::Span<std::byte> scratch;
  if (job.own) {
    sections = &job.own->at_runner;
    sections->first = job.own->section;
    sections->end = job.program->FirstUnready(job.own->section, job.own->over);
    scratch = hooks_.scratch(job);
  }
  homes_.compute.Post([this, id = job.id, &place, bytes = job.spec.bytes, program = job.program,
                       device = job.device->id, memory = hooks_.memory(job), sections, scratch,
                       step_over = hooks_.step_over(job), stop = &job.stop, others = &job.others,
                       account = job.account()] {
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
        {id, *program, sections, memory, scratch, step_over, stop, others, nullptr, account}, over);
  });
}

void JobQueue::OnRan(TransferId id, AtRunner& place, std::optional<absl::Status> ran,
                     uint64_t left) {
  place.Free();
  if (!ran) return Pump();
  absl::Status status = *std::move(ran);
  Job& job = *jobs_.find(id)->second;
  std::erase(handed_, &job);
  const int64_t run_ns = job.run_ns.load(std::memory_order_relaxed);
  const uint64_t cost =
      homes_.runner.WorkIn(absl::Nanoseconds(run_ns - std::exchange(job.charged_ns, run_ns)));
  if (left == JobRunner::kNotBegun && job.stopped_by.ok()) {
    // As if it had been taken back. It is not returned to the queue's front, where it would be
    // before the job that it waits for.
    Add(job);
    return Pump();
  }
  if (left == JobRunner::kNotBegun) {
    status = Error(absl::StatusCode::kCancelled, Reason::kCancelled, "not begun");
  } else if (left > 0) {
    job.aside = true;
    if (job.stopped_by.ok()) {
      job.state = State::kReady;
      ready_.Return(job, left);
      ready_.Charge(job, job.served - std::min(left, job.served), cost);
      return Pump();
    }
    status = Error(absl::StatusCode::kCancelled, Reason::kCancelled, "put aside between launches");
  }
  if (job.own && status.ok()) job.own->section = job.own->at_runner.done;
  ready_.Charge(job, job.served, cost);
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
  Add(job);
}

}  // namespace ferry
