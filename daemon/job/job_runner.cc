// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/job_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/executor.h"

namespace ferry {

bool MayBegin(const PreparedBatch& batch, absl::Span<const Joint> joints, uint64_t n) {
  return batch.Wants(n) && std::all_of(joints.begin(), joints.end(), [n](const Joint& joint) {
           return joint.batch->IsOver(joint.sends ? n - 1 : n);
         });
}

// Decides how long a run may go on while others wait.
struct JobRunner::Slice {
  const JobRunner& runner;
  const uint64_t session;
  const std::atomic<bool>* others;  // whether posted jobs of others wait; null for a firing
  const bool fits;                  // its scratch is within the bound of what may be put aside
  const absl::Time until = MonotonicNow() + kSlice;

  bool IsOver() const {
    if (!fits || (!PostedWait() && runner.batches_.empty())) return false;
    if (MonotonicNow() < until) return false;
    return PostedWait() || runner.OthersReady(SessionId(static_cast<uint32_t>(session)));
  }
  bool PostedWait() const {
    if (others != nullptr) return others->load(std::memory_order_relaxed);
    const auto is_other = [this](const std::atomic<uint64_t>& posted) {
      const uint64_t other = posted.load(std::memory_order_relaxed);
      return other != 0 && other != session;
    };
    return is_other(runner.posted_) || is_other(runner.posted_too_);
  }
};

absl::Status JobRunner::Run(const PostedJob& job, uint64_t& left) {
  home_.Check();
  left = 0;
  if (IsHeldUp(job.id)) {
    left = std::max<uint64_t>(job.program.work, 1);
    return absl::OkStatus();
  }
  const auto found = runs_aside_.find(job.id);
  std::unique_ptr<RunAside> aside_run;
  if (found != runs_aside_.end()) {
    aside_run = std::move(found->second);
    runs_aside_.erase(found);
  }
  absl::Status status = RunSlice(job, aside_run);
  if (aside_run != nullptr) {
    left = job.program.WorkLeft(aside_run->aside);
    runs_aside_[job.id] = std::move(aside_run);
  }
  return status;
}

void JobRunner::Drop(TransferId job) {
  home_.Check();
  const auto found = runs_aside_.find(job);
  if (found == runs_aside_.end()) return;
  LetGo(job, found->second);
  runs_aside_.erase(found);
}

void JobRunner::LetGo() {
  home_.Check();
  FERRY_CHECK(runs_aside_.empty() && batches_.empty());
  scratch_.Shrink(0);
  computer_->LetGo();
}

void JobRunner::LetGo(TransferId job, std::unique_ptr<RunAside>& aside_run) {
  if (aside_run == nullptr) return;
  aside_bytes_ -= aside_run->scratch.bytes();
  aside_run.reset();
  aside_.erase(SessionOf(job));
}

bool JobRunner::IsHeldUp(TransferId job) const {
  const auto found = aside_.find(SessionOf(job));
  return found != aside_.end() && found->second != job;
}

absl::Status JobRunner::RunSlice(const PostedJob& job, std::unique_ptr<RunAside>& aside_run) {
  const absl::Time begun = MonotonicNow();
  absl::StatusOr<absl::Span<std::byte>> scratch = job.scratch;
  const uint64_t kept = job.from_constants != nullptr ? job.program.from_constants_bytes() : 0;
  const bool lent = job.program.transfers.empty();
  const uint64_t bytes = lent ? job.program.scratch_bytes() - kept : 0;
  if (lent) scratch = (aside_run != nullptr ? aside_run->scratch : scratch_).Get(bytes);
  absl::Status status = scratch.status();
  if (status.ok()) {
    compute::RunControl::MayGoOn may_go_on;
    if (job.stop != nullptr) {
      may_go_on = [stop = job.stop] { return !stop->load(std::memory_order_relaxed); };
    }
    const bool fits = aside_run != nullptr || (aside_bytes_ <= most_kept_.of_all &&
                                               bytes <= most_kept_.of_all - aside_bytes_);
    const Slice slice{*this, SessionOf(job.id).value(), job.others, fits};
    compute::HostProgram::Aside aside;
    if (aside_run != nullptr) aside = std::move(aside_run->aside);
    aside.wanted = [&slice] { return slice.IsOver(); };
    status = computer_->Do({job.program, job.section, job.memory, *scratch, job.step_over,
                            may_go_on, job.from_constants, aside});
    if (status.ok() && aside.put) {
      if (aside_run == nullptr) {
        aside_run = std::make_unique<RunAside>(*computer_);
        if (lent) aside_run->scratch.Swap(scratch_);
        aside_bytes_ += aside_run->scratch.bytes();
        aside_[SessionOf(job.id)] = job.id;
      }
      aside_run->aside = std::move(aside);
    } else {
      LetGo(job.id, aside_run);
    }
  }
  scratch_.Shrink();
  run_ns_.fetch_add(absl::ToInt64Nanoseconds(MonotonicNow() - begun), std::memory_order_relaxed);
  return status;
}

void JobRunner::Arm(PreparedBatch& batch, std::vector<PreparedJob> jobs) {
  home_.Check();
  batches_.push_back(std::make_unique<Batch>(Batch{batch, {}}));
  Batch& made = *batches_.back();
  for (PreparedJob& job : jobs) {
    made.jobs.push_back(std::make_unique<ArmedJob>(std::move(job), made, *computer_));
  }
  listen_(batch.doorbell(), true);
  for (size_t i = 0; i < made.jobs.size(); ++i) batch.Arm();
}

void JobRunner::Disarm(PreparedBatch& batch) {
  home_.Check();
  const auto found = std::find_if(batches_.begin(), batches_.end(),
                                  [&](const auto& entry) { return &entry->words == &batch; });
  FERRY_CHECK(found != batches_.end());
  for (const std::unique_ptr<ArmedJob>& armed : (*found)->jobs) {
    batch.Disarm();
    if (armed->turn) ready_.Remove(*armed->turn);
    if (armed->from_constants) Forget(*armed);
    LetGo(armed->job.id, armed->aside_run);
  }
  listen_(batch.doorbell(), false);
  batches_.erase(found);
}

JobRunner::ArmedJob* JobRunner::FindReady(const Batch& batch) const {
  const uint64_t n = batch.words.firings() + 1;
  if (!batch.words.Wants(n) || aside_.contains(SessionOf(batch.jobs.front()->job.id))) {
    return nullptr;
  }
  for (const std::unique_ptr<ArmedJob>& armed : batch.jobs) {
    if (armed->over < n && !armed->failed && !armed->turn &&
        MayBegin(batch.words, armed->job.joints, n)) {
      return armed.get();
    }
  }
  return nullptr;
}

bool JobRunner::OthersReady(SessionId session) const {
  return ready_.HasOthers(session.value()) ||
         std::any_of(batches_.begin(), batches_.end(), [&](const auto& batch) {
           return SessionOf(batch->jobs.front()->job.id) != session && FindReady(*batch) != nullptr;
         });
}

bool JobRunner::Poll() {
  home_.Check();
  for (const std::unique_ptr<Batch>& batch : batches_) {
    while (ArmedJob* const armed = FindReady(*batch)) {
      ready_.Add(armed->turn.emplace(armed->job, *armed));
    }
  }
  while (!ready_.empty()) {
    Turn& turn = static_cast<Turn&>(*ready_.Next());
    ArmedJob& armed = turn.armed;
    if (IsHeldUp(armed.job.id)) {  // FindReady finds it again when the other run is over
      ready_.Remove(turn);
      armed.turn.reset();
      continue;
    }
    ready_.Serve(turn.left());
    if (const uint64_t left = Fire(armed); left > 0) {
      ready_.Return(turn, left);
    } else {
      armed.turn.reset();
    }
    return true;
  }
  return false;
}

bool JobRunner::PrepareToPark() {
  home_.Check();
  return ready_.empty() &&
         std::none_of(batches_.begin(), batches_.end(),
                      [this](const auto& batch) { return FindReady(*batch) != nullptr; });
}

void JobRunner::Keep(ArmedJob& armed) {
  const uint64_t bytes = armed.job.program->from_constants_bytes();
  if (armed.from_constants || bytes == 0 || bytes > most_kept_.of_all - kept_bytes_) return;
  const SessionId session = SessionOf(armed.job.id);
  const auto found = kept_.find(session);
  const uint64_t of_session = found == kept_.end() ? 0 : found->second;
  if (bytes > most_kept_.of_session - std::min(of_session, most_kept_.of_session)) return;
  const absl::StatusOr<absl::Span<std::byte>> memory = armed.kept_memory.Get(bytes);
  if (!memory.ok()) return;
  kept_[session] = of_session + bytes;
  kept_bytes_ += bytes;
  armed.from_constants = compute::HostProgram::FromConstants{*memory, {}};
}

void JobRunner::Forget(const ArmedJob& armed) {
  const uint64_t bytes = armed.job.program->from_constants_bytes();
  const auto found = kept_.find(SessionOf(armed.job.id));
  found->second -= bytes;
  if (found->second == 0) kept_.erase(found);
  kept_bytes_ -= bytes;
}

uint64_t JobRunner::Fire(ArmedJob& armed) {
  const PreparedJob& job = armed.job;
  PreparedBatch& words = armed.batch.words;
  const uint64_t n = armed.over + 1;
  if (armed.aside_run == nullptr) words.Begin(n);
  const auto define = [&](size_t step) {
    for (const Joint& joint : job.joints) {
      if (joint.step == step) joint.batch->Define(joint.sends ? n : n + 1);
    }
  };
  Keep(armed);
  const absl::Status status =
      RunSlice({.id = job.id,
                .program = *job.program,
                .memory = job.memory,
                // Who hears of steps has a GPU wait after each.
                .step_over = job.joints.empty() ? compute::HostProgram::StepOver() : define,
                .stop = job.stop,
                .from_constants = armed.from_constants ? &*armed.from_constants : nullptr},
               armed.aside_run);
  if (!status.ok()) {
    armed.failed = true;
    failed_(job.id, status);
    return 0;
  }
  if (armed.aside_run != nullptr) return job.program->WorkLeft(armed.aside_run->aside);
  define(Joint::kAtEnd);
  armed.over = n;
  words.Over(n, 1);
  return 0;
}

}  // namespace ferry
