// SPDX-License-Identifier: Apache-2.0
// JobTable's prepared batches: from their posting until all of their jobs, and the transfers that
// they are joined to, are over.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/status.h"
#include "daemon/job_table.h"

namespace ferry {

void JobTable::Prepare(Session& session, const PostReply& reply, PostBatch& batch,
                       std::vector<BoundJob> bound) {
  const PreparedKey key{session.id(), reply.prepared_batch};
  PreparedRecord& record = *session.prepared().Find(reply.prepared_batch);
  Prepared& prepared = prepared_[key];
  prepared.batch = record.batch.get();
  prepared.deadline = absl::InfiniteDuration();
  std::vector<JobRunner::PreparedJob> armed;
  for (size_t i = 0; i < batch.jobs.size(); ++i) {
    const std::vector<BoundJob::Joined> joined = std::move(bound[i].joined);
    Job& job = Add(session.id(), reply, i, batch, std::move(bound[i]));
    job.state = State::kArmed;
    prepared.jobs.push_back(job.id);
    prepared.deadline = std::min(prepared.deadline, job.spec.deadline - job.posted);
    for (const auto& [number, step] : joined) {
      PreparedRecord& other = *session.prepared().Find(number);
      const bool sends = other.side == Side::kSend;
      job.joints.push_back({other.batch.get(), sends, step.value_or(Joint::kAtEnd)});
      joined_[{session.id(), number}] = job.id;
      record.fires.push_back(number);
      other.joined = true;
      other.batch->SetJoined(true);
      if (!sends) other.batch->Define(1);
    }
    armed.push_back({job.id, job.spec.priority, job.program, MemoryOf(job), job.joints, &job.stop});
  }
  prepared.look = homes_.control.Now();
  next_look_ = std::min(next_look_, prepared.look);
  homes_.compute.Post([this, &words = *prepared.batch, armed = std::move(armed)]() mutable {
    homes_.runner.Arm(words, std::move(armed));
  });
}

void JobTable::EndPrepared(PreparedKey key, TransferId culprit, const absl::Status& why) {
  Prepared& prepared = prepared_.find(key)->second;
  if (std::exchange(prepared.ending, true)) return;
  prepared.culprit = culprit;
  prepared.why = why;
  for (const TransferId id : prepared.jobs) Stop(*jobs_.find(id)->second, why);
  Session& session = *sessions_.Find(key.first);
  for (const uint32_t number : session.prepared().Find(key.second)->fires) {
    const PreparedRecord& joined = *session.prepared().Find(number);
    if (joined.left == 0) continue;
    hooks_.poison(joined.first, PoisonedBy(culprit, why, "prepared job ", "which fires it"));
  }
  homes_.compute.Post([this, key, &words = *prepared.batch] {
    homes_.runner.Disarm(words);
    homes_.control.PostOrRun([this, key] { OnDisarmed(key); });
  });
}

void JobTable::OnDisarmed(PreparedKey key) {
  Prepared prepared = std::move(prepared_.extract(key).mapped());
  Session& session = *sessions_.Find(key.first);
  for (const uint32_t number : session.prepared().Find(key.second)->fires) {
    PreparedRecord& joined = *session.prepared().Find(number);
    joined.joined = false;
    joined.batch->SetJoined(false);
    joined_.erase({key.first, number});
  }
  for (const TransferId id : prepared.jobs) {
    absl::Status status = prepared.why;
    if (id != prepared.culprit) {
      status = Error(prepared.why.code(), ReasonOf(prepared.why),
                     absl::StrCat("its prepared batch has ended with job ",
                                  SequenceOf(prepared.culprit), ": ", prepared.why.message()));
    }
    End(*jobs_.find(id)->second, std::move(status));
  }
}

void JobTable::LookAtFiring(PreparedKey key, Prepared& prepared, absl::Time now) {
  // The shortest time between two looks: a shorter deadline is noticed no sooner.
  constexpr absl::Duration kLook = absl::Milliseconds(20);
  if (prepared.ending || now < prepared.look) return;
  const PreparedBatch& batch = *prepared.batch;
  const uint64_t n = batch.firings() + 1;
  const auto late = std::find_if(prepared.jobs.begin(), prepared.jobs.end(), [&](TransferId id) {
    return MayBegin(batch, jobs_.find(id)->second->joints, n);
  });
  prepared.look = now + std::max(prepared.deadline, kLook);
  if (batch.begun() >= n || late == prepared.jobs.end()) {
    prepared.seen = 0;
  } else if (prepared.seen != n) {
    prepared.seen = n;
    prepared.since = now;
  } else if (now - prepared.since >= prepared.deadline) {
    EndPrepared(key, *late,
                Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
                      absl::StrCat("firing ", n, " of prepared job ", SequenceOf(*late),
                                   " was not begun within ", DurationText(prepared.deadline),
                                   "; it waited for its turn")));
  }
}

}  // namespace ferry
