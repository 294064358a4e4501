// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/prepared_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/status.h"

namespace ferry {

void PreparedJobs::Add(Session& session, uint32_t number, const std::vector<Job*>& jobs,
                       const std::vector<std::vector<BoundJob::Joined>>& joined) {
  home_.Check();
  PreparedRecord& record = *session.prepared().Find(number);
  Batch& batch = batches_[Key{session.id(), number}];
  batch.words = record.batch.get();
  batch.deadline = absl::InfiniteDuration();
  std::vector<JobRunner::PreparedJob> armed;
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = *jobs[i];
    job.state = Job::State::kArmed;
    batch.jobs.push_back(job.id);
    batch.deadline = std::min(batch.deadline, job.spec.deadline - job.posted);
    for (const auto& [other_number, step] : joined[i]) {
      PreparedRecord& other = *session.prepared().Find(other_number);
      const bool sends = other.side == Side::kSend;
      job.joints.push_back({other.batch.get(), sends, step.value_or(Joint::kAtEnd)});
      joined_[{session.id(), other_number}] = job.id;
      record.fires.push_back(other_number);
      other.joined = true;
      other.batch->SetJoined(true);
      if (!sends) other.batch->Define(1);
    }
    armed.push_back({job.id, job.spec.priority, job.program, hooks_.memory(job), job.joints,
                     &job.stop, job.account()});
  }
  batch.look = control_.Now();
  next_look_ = std::min(next_look_, batch.look);
  compute_.Post([this, &words = *batch.words, armed = std::move(armed)]() mutable {
    runner_.Arm(words, std::move(armed));
  });
}

void PreparedJobs::OnOver(const Ended& ended) {
  home_.Check();
  if (!ended.prepared) return;
  const auto joined = joined_.find(Key{SessionOf(ended.transfer), ended.over_timeline});
  if (joined == joined_.end()) return;
  End(JobOf(joined->second),
      PoisonedBy(ended.transfer, ended.status, "prepared transfer ", "to which it is joined"));
}

void PreparedJobs::End(const Job& culprit, const absl::Status& why) {
  home_.Check();
  End(KeyOf(culprit), culprit.id, why);
}

void PreparedJobs::EndAll(std::optional<SessionId> session, const absl::Status& why) {
  home_.Check();
  for (auto& [key, batch] : batches_) {
    if (!session || key.first == *session) End(key, batch.jobs.front(), why);
  }
}

void PreparedJobs::End(Key key, TransferId culprit, const absl::Status& why) {
  Batch& batch = batches_.find(key)->second;
  if (std::exchange(batch.ending, true)) return;
  batch.culprit = culprit;
  batch.why = why;
  for (const TransferId id : batch.jobs) JobOf(id).Stop(why);
  Session& session = *sessions_.Find(key.first);
  for (const uint32_t number : session.prepared().Find(key.second)->fires) {
    const PreparedRecord& joined = *session.prepared().Find(number);
    if (joined.left == 0) continue;
    hooks_.poison(joined.first, PoisonedBy(culprit, why, "prepared job ", "which fires it"));
  }
  compute_.Post([this, key, &words = *batch.words] {
    runner_.Disarm(words);
    control_.PostOrRun([this, key] { OnDisarmed(key); });
  });
}

void PreparedJobs::OnDisarmed(Key key) {
  Batch batch = std::move(batches_.extract(key).mapped());
  Session& session = *sessions_.Find(key.first);
  for (const uint32_t number : session.prepared().Find(key.second)->fires) {
    PreparedRecord& joined = *session.prepared().Find(number);
    joined.joined = false;
    joined.batch->SetJoined(false);
    joined_.erase({key.first, number});
  }
  for (const TransferId id : batch.jobs) {
    absl::Status status = batch.why;
    if (id != batch.culprit) {
      status = Error(batch.why.code(), ReasonOf(batch.why),
                     absl::StrCat("its prepared batch has ended with job ",
                                  SequenceOf(batch.culprit), ": ", batch.why.message()));
    }
    hooks_.end(JobOf(id), std::move(status));
  }
}

absl::Time PreparedJobs::OnTime(absl::Time now) {
  home_.Check();
  if (now >= next_look_) {
    next_look_ = absl::InfiniteFuture();
    for (auto& [key, batch] : batches_) {
      LookAtFiring(key, batch, now);
      if (!batch.ending) next_look_ = std::min(next_look_, batch.look);
    }
  }
  return next_look_;
}

void PreparedJobs::LookAtFiring(Key key, Batch& batch, absl::Time now) {
  // The shortest time between two looks: a shorter deadline is noticed no sooner.
  constexpr absl::Duration kLook = absl::Milliseconds(20);
  if (batch.ending || now < batch.look) return;
  const PreparedBatch& words = *batch.words;
  const uint64_t n = words.firings() + 1;
  const auto late = std::find_if(batch.jobs.begin(), batch.jobs.end(), [&](TransferId id) {
    const Job& job = JobOf(id);
    return MayBegin(words, job.joints, n) && !IsOverQuota(job, now);
  });
  batch.look = now + std::max(batch.deadline, kLook);
  if (words.begun() >= n || late == batch.jobs.end()) {
    batch.seen = 0;
  } else if (batch.seen != n) {
    batch.seen = n;
    batch.since = now;
  } else if (now - batch.since >= batch.deadline) {
    End(key, *late,
        Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
              absl::StrCat("firing ", n, " of prepared job ", SequenceOf(*late),
                           " was not begun within ", DurationText(batch.deadline),
                           "; it waited for its turn")));
  }
}

uint64_t PreparedJobs::FiringsOf(const Job& job) const {
  home_.Check();
  return BatchOf(job).words->firings();
}

std::string PreparedJobs::WaitsFor(const Job& job) const {
  home_.Check();
  const Batch& batch = BatchOf(job);
  const PreparedBatch& words = *batch.words;
  const uint64_t n = words.firings() + 1;
  if (words.begun() == n) return "";
  if (batch.ending) return "its end";
  if (!words.Firing()) {
    return absl::StrCat("this end to fire it: its defined word has not reached ", n);
  }
  if (!MayBegin(words, job.joints, n)) {
    return absl::StrCat("the prepared transfers it is joined to, for firing ", n);
  }
  const absl::Time now = control_.Now();
  return IsOverQuota(job, now) ? job.quota->TextOf(now) : "its turn";
}

}  // namespace ferry
