// SPDX-License-Identifier: Apache-2.0
// JobQueue holds posted jobs that are ready, until the compute thread has run them. Sessions share
// the compute thread equally, by the time that their jobs take (FairQueue): what a job costs is
// estimated by its work, and corrected when it has run. A job whose user has had more than his
// share of the time is held until he has some again (TimeQuota).
//
// Two jobs at a time are handed to the compute thread, so that the next one need not come from
// control first; to that of a GPU up to JobRunner::jobs_ahead(), if all of them together are
// estimated to take no longer than JobRunner::kSlice. A handed job that has not begun can be taken
// back; where only two are handed, the second one is when a job of another session comes. A run
// that has lasted for JobRunner::kSlice is put aside for jobs of other sessions, and is ready
// again.
//
// Owns nothing of the jobs, which must stay until they are removed or have run. Home: control. The
// compute executor must be stopped before the queue is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/job/job.h"
#include "daemon/job/job_runner.h"
#include "transfer/fair_queue.h"

namespace ferry {

class JobQueue {
 public:
  struct Homes {
    Executor& control;
    Executor& compute;
    JobRunner& runner;  // must be the one that runs on `compute`
  };
  struct Hooks {
    JobMemoryOf memory;
    // The scratch of a job that has memory of its own.
    std::function<absl::Span<std::byte>(const Job&)> scratch;
    // Called by the compute thread when a step of the job's plan is over; null: nobody asks.
    std::function<compute::HostProgram::StepOver(const Job&)> step_over;
    // The compute thread has run the job, or some sections of it; the job is in no queue any more.
    std::function<void(Job&, absl::Status)> ran;
  };
  // `jobs`: all jobs, in which a job is found again when it has run.
  JobQueue(Homes homes, const Jobs& jobs, Hooks hooks)
      : homes_(homes),
        jobs_(jobs),
        hooks_(std::move(hooks)),
        at_runner_(homes.runner.jobs_ahead()) {}

  // The job is ready: it waits for its turn, which Pump gives it.
  void Add(Job& job);
  // Hands jobs to the compute thread, in the order of their turns, while places are free.
  void Pump();
  // Makes held jobs ready again whose user's quota allows it; Pump then hands them out. Returns
  // when it wants to be called again.
  absl::Time OnTime(absl::Time now);
  // Takes a handed job that has not begun back; it waits for its turn again. Does nothing to other
  // jobs.
  void TakeBack(Job& job);
  // Takes a job that is ready out of the queue. Does nothing to other jobs.
  void Remove(Job& job);
  // The job runs no more, though transfers of it may not be over: a run of it that was put aside
  // will not go on. A second call does nothing.
  void Drop(const Job& job);

  // Whether the compute thread has begun a job that is handed to it.
  static bool HasBegun(const Job& job) {
    return job.state == Job::State::kAtRunner && job.at_runner->state() == AtRunner::State::kBegun;
  }
  size_t running() const { return CountAtRunner(AtRunner::State::kBegun); }
  // Jobs that wait for their turn, handed ones too.
  size_t waiting() const { return ready_.size() + CountAtRunner(AtRunner::State::kWaits); }
  // Jobs that wait for their users' share of the time.
  size_t held() const { return held_.size(); }
  bool IsHeld(const Job& job) const;

 private:
  // The job whose turn it is. Null if no ready job's user has quota left.
  Job* Next();
  // Whether the job may be handed to the compute thread beside those that are.
  bool MayHand(const Job& job) const;
  void Hand(Job& job, AtRunner& place);
  // Whether the compute thread queues jobs ahead, and so begins each as soon as it is handed.
  bool ahead() const { return at_runner_.size() > 2; }
  size_t CountAtRunner(AtRunner::State state) const;
  // The compute thread has finished with a job that it was handed. No status: the job was taken
  // back before it began. `left`: the work that is left if the job was put aside, else 0.
  void OnRan(TransferId id, AtRunner& place, std::optional<absl::Status> status, uint64_t left);
  // Tells each handed job, and JobRunner, whether other sessions wait.
  void ShareOut();

  const Homes homes_;
  const Jobs& jobs_;
  const Hooks hooks_;
  std::vector<AtRunner> at_runner_;
  std::vector<Job*> handed_;  // handed jobs that were not taken back, in the order of handing
  FairQueue ready_;
  std::vector<Job*> held_;  // in the order of their turns
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
