// SPDX-License-Identifier: Apache-2.0
#include "daemon/job_runner.h"

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

absl::Status JobRunner::Run(const Posted& job) {
  const absl::Time begun = MonotonicNow();
  absl::StatusOr<absl::Span<std::byte>> scratch = job.scratch;
  const uint64_t kept = job.kept != nullptr ? job.program.kept_bytes() : 0;
  if (job.program.transfers.empty()) scratch = scratch_.Get(job.program.scratch_bytes() - kept);
  absl::Status status = scratch.status();
  if (status.ok()) {
    compute::RunControl::MayGoOn may_go_on;
    if (job.stop != nullptr) {
      may_go_on = [stop = job.stop] { return !stop->load(std::memory_order_relaxed); };
    }
    status = job.program.Run(job.stage, job.memory, *scratch, &workers_, job.step_over, may_go_on,
                             job.kept);
  }
  scratch_.Shrink();
  run_ns_.fetch_add(absl::ToInt64Nanoseconds(MonotonicNow() - begun), std::memory_order_relaxed);
  return status;
}

void JobRunner::Arm(PreparedBatch& batch, std::vector<PreparedJob> jobs) {
  batches_.push_back(std::make_unique<Batch>(Batch{batch, {}}));
  Batch& made = *batches_.back();
  for (PreparedJob& job : jobs) {
    made.jobs.push_back(std::make_unique<Armed>(std::move(job), made));
  }
  listen_(batch.doorbell(), true);
  for (size_t i = 0; i < made.jobs.size(); ++i) batch.Arm();
}

void JobRunner::Disarm(PreparedBatch& batch) {
  const auto found = std::find_if(batches_.begin(), batches_.end(),
                                  [&](const auto& entry) { return &entry->words == &batch; });
  FERRY_CHECK(found != batches_.end());
  for (const std::unique_ptr<Armed>& armed : (*found)->jobs) {
    batch.Disarm();
    if (armed->turn) ready_.Remove(*armed->turn);
    if (armed->kept) Forget(*armed);
  }
  listen_(batch.doorbell(), false);
  batches_.erase(found);
}

JobRunner::Armed* JobRunner::FindReady(const Batch& batch) const {
  const uint64_t n = batch.words.firings() + 1;
  if (!batch.words.Wants(n)) return nullptr;
  for (const std::unique_ptr<Armed>& armed : batch.jobs) {
    if (armed->over < n && !armed->failed && !armed->turn &&
        MayBegin(batch.words, armed->job.joints, n)) {
      return armed.get();
    }
  }
  return nullptr;
}

bool JobRunner::Poll() {
  for (const std::unique_ptr<Batch>& batch : batches_) {
    while (Armed* const armed = FindReady(*batch)) {
      ready_.Add(armed->turn.emplace(armed->job, *armed));
    }
  }
  if (ready_.empty()) return false;
  Turn& turn = static_cast<Turn&>(*ready_.Next());
  ready_.Serve(turn.left());
  Armed& armed = turn.armed;
  armed.turn.reset();
  Fire(armed);
  return true;
}

bool JobRunner::PrepareToPark() {
  return std::none_of(batches_.begin(), batches_.end(),
                      [this](const auto& batch) { return FindReady(*batch) != nullptr; });
}

void JobRunner::Keep(Armed& armed) {
  const uint64_t bytes = armed.job.program->kept_bytes();
  if (armed.kept || bytes == 0 || bytes > most_kept_.of_all - kept_bytes_) return;
  const SessionId session = SessionOf(armed.job.id);
  const auto found = kept_.find(session);
  const uint64_t of_session = found == kept_.end() ? 0 : found->second;
  if (bytes > most_kept_.of_session - std::min(of_session, most_kept_.of_session)) return;
  const absl::StatusOr<absl::Span<std::byte>> memory = armed.kept_memory.Get(bytes);
  if (!memory.ok()) return;
  kept_[session] = of_session + bytes;
  kept_bytes_ += bytes;
  armed.kept = compute::HostProgram::Kept{*memory, {}};
}

void JobRunner::Forget(const Armed& armed) {
  const uint64_t bytes = armed.job.program->kept_bytes();
  const auto found = kept_.find(SessionOf(armed.job.id));
  found->second -= bytes;
  if (found->second == 0) kept_.erase(found);
  kept_bytes_ -= bytes;
}

void JobRunner::Fire(Armed& armed) {
  const PreparedJob& job = armed.job;
  PreparedBatch& words = armed.batch.words;
  const uint64_t n = armed.over + 1;
  words.Begin(n);
  const auto define = [&](size_t step) {
    for (const Joint& joint : job.joints) {
      if (joint.step == step) joint.batch->Define(joint.sends ? n : n + 1);
    }
  };
  Keep(armed);
  if (absl::Status status = Run(
          {*job.program, 0, job.memory, {}, define, job.stop, armed.kept ? &*armed.kept : nullptr});
      !status.ok()) {
    armed.failed = true;
    return failed_(job.id, std::move(status));
  }
  define(Joint::kAtEnd);
  armed.over = n;
  words.Over(n, 1);
}

}  // namespace ferry
