// SPDX-License-Identifier: Apache-2.0
// PreparedJobs holds the prepared batches of jobs, each from its posting until all of its jobs, and
// the prepared batches of transfers that they are joined to, are over. All of them end together.
//
// Example: batch 4 has one job, joined to batch 2 of receives. Batch 2 ends since its sender's
// process is gone. OnOver ends batch 4 with POISONED: its job is stopped before its next launch,
// and JobRunner gives it back. Then the job ends, and batch 2 may be joined again.
//
// Owns what is known of a batch; JobTable owns the jobs. The session owns each batch's words. Home:
// control. The compute executor must be stopped before it is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/job/job.h"
#include "daemon/job/job_binding.h"
#include "daemon/job/job_runner.h"
#include "daemon/session/session.h"
#include "daemon/session/session_table.h"

namespace ferry {

class PreparedJobs {
 public:
  struct Hooks {
    JobMemoryOf memory;
    // Ends a transfer: what it waits for will never be defined.
    std::function<void(TransferId, const absl::Status& why)> poison;
    std::function<void(Job&, absl::Status)> end;
  };
  // `runner` must be the one that runs on `compute`.
  PreparedJobs(Executor& control, Executor& compute, JobRunner& runner, const Jobs& jobs,
               SessionTable& sessions, Hooks hooks)
      : control_(control),
        compute_(compute),
        runner_(runner),
        jobs_(jobs),
        sessions_(sessions),
        hooks_(std::move(hooks)) {}

  // The session has taken a prepared batch of these jobs, which is not empty. `joined`: of each
  // job, the batches of transfers that it fires.
  void Add(Session& session, uint32_t number, const std::vector<Job*>& jobs,
           const std::vector<std::vector<BoundJob::Joined>>& joined);
  // A transfer is over: if it is one of a batch that a job is joined to, that job's batch ends too.
  void OnOver(const Ended& ended);
  // Begins to end the batch of a prepared job, with all that belongs to it, since the job, or what
  // it needs, has ended because of `why`.
  void End(const Job& culprit, const absl::Status& why);
  // Ends all batches, or those of one session.
  void EndAll(std::optional<SessionId> session, const absl::Status& why);
  // Ends a batch when a firing that may begin has not begun within the batch's deadline. Time
  // during which the user is over his quota does not count. Returns when it wants to be called
  // again.
  absl::Time OnTime(absl::Time now);

  // How many firings of a prepared job are over.
  uint64_t FiringsOf(const Job& job) const;
  // What a prepared job waits for, for people; "" while a firing runs.
  std::string WaitsFor(const Job& job) const;

 private:
  // A prepared batch of jobs.
  struct Batch {
    PreparedBatch* words = nullptr;
    std::vector<TransferId> jobs;
    absl::Duration deadline;  // the longest time from when a firing may begin to when it begins
    bool ending = false;
    TransferId culprit;  // the transfer or job whose end, for the reason `why`, ends all
    absl::Status why;
    // Control looks now and then whether a firing that may begin has been kept from beginning for
    // too long.
    uint64_t seen = 0;  // number of the firing that may begin; 0: none
    absl::Time since;   // since when `seen` may begin
    absl::Time look;    // when to look again
  };
  // A prepared batch, by its session and its number.
  using Key = std::pair<SessionId, uint32_t>;
  static Key KeyOf(const Job& job) { return {SessionOf(job.id), job.spec.over_timeline}; }

  static bool IsOverQuota(const Job& job, absl::Time now) {
    return job.quota != nullptr && job.quota->IsOver(now);
  }
  Job& JobOf(TransferId id) const { return *jobs_.find(id)->second; }
  const Batch& BatchOf(const Job& job) const { return batches_.find(KeyOf(job))->second; }
  void End(Key key, TransferId culprit, const absl::Status& why);
  void OnDisarmed(Key key);
  void LookAtFiring(Key key, Batch& batch, absl::Time now);

  Executor& control_;
  Executor& compute_;
  JobRunner& runner_;
  const Jobs& jobs_;
  SessionTable& sessions_;
  const Hooks hooks_;
  absl::flat_hash_map<Key, Batch> batches_;
  // From a prepared batch of transfers to the job that fires it.
  absl::flat_hash_map<Key, TransferId> joined_;
  absl::Time next_look_ = absl::InfiniteFuture();
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
