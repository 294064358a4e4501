// SPDX-License-Identifier: Apache-2.0
// Runs jobs, one after the other, by its Computer: there is a JobRunner for the CPU, and one for
// each GPU. A posted job runs when JobTable calls Run. Between posted jobs JobRunner fires prepared
// jobs by itself: firing n of a prepared job needs no task and no message. It begins when its
// client has stored n in the batch's 'defined' word and the batches of transfers that it is joined
// to allow it (MayBegin). JobRunner fires those batches too, each as soon as the last step of the
// plan that needs its bytes is over.
//
// Where several firings may begin, sessions share equally, by the time that their runs take. That
// is estimated by what they cost, and corrected when a run is over. A firing whose user has had
// more than his share of the time waits (TimeQuota). A run that has lasted for kSlice while other
// sessions wait is put aside between two launches, and goes on when its turn comes again. Until
// then nothing else of its session runs, because that may use the same memory.
//
// Runs of a GPU are queued ahead: while one is under way the next few are queued behind it, in the
// order of their turns: as many posted ones as JobQueue hands out, and kFiringsAhead firings. Runs
// end in that order, which Poll sees; it also tells of their steps. A run that was put aside and
// goes on is not queued ahead.
//
// Example: batch 4 has one job, joined to batch 2 of receives and batch 3 of sends. The client
// stores 7 in the 'defined' word of batch 4. Firing 7 begins when firing 7 of batch 2 is over and
// firing 6 of batch 3 is over. After the last step that reads what batch 2 received, its firing 8
// is asked for; after the last step that writes what batch 3 sends, its firing 7 is.
//
// Home: compute. JobRunner is a poller of the lane there; while a job runs, everything else of that
// thread waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "base/profiler_range.h"
#include "daemon/job/compiled_program.h"
#include "daemon/job/computer.h"
#include "daemon/job/scratch.h"
#include "daemon/job/time_quota.h"
#include "device/lane.h"
#include "device/prepared_batch.h"
#include "transfer/fair_queue.h"

namespace ferry {

// A prepared batch of transfers that a prepared job fires.
struct Joint {
  PreparedBatch* batch = nullptr;
  bool sends = false;
  // The step of the plan after which the batch's next firing is asked for.
  size_t step = kAtEnd;
  static constexpr size_t kAtEnd = SIZE_MAX;
};

// Whether firing `n` of the prepared batch of jobs `batch` may begin, not counting whose turn it
// is. Any thread.
bool MayBegin(const PreparedBatch& batch, absl::Span<const Joint> joints, uint64_t n);

// A place in which control hands a job to the compute thread. The compute thread begins the job,
// unless control takes it back before; what was taken back is not touched any more. The place is
// free again when the compute thread is done with the job, or has skipped it. Home: each part says
// its own.
class AtRunner {
 public:
  enum class State : uint8_t { kFree, kWaits, kBegun, kTakenBack };
  // Any thread.
  State state() const { return state_.load(std::memory_order_acquire); }
  // On control.
  void Hand() { state_.store(State::kWaits, std::memory_order_release); }
  bool TakeBack() { return Claim(State::kTakenBack); }
  void Free() { state_.store(State::kFree, std::memory_order_relaxed); }
  // On the compute thread.
  bool Begin() { return Claim(State::kBegun); }

 private:
  // False if the other thread was first.
  bool Claim(State state) {
    State waits = State::kWaits;
    return state_.compare_exchange_strong(waits, state, std::memory_order_acq_rel);
  }
  std::atomic<State> state_{State::kFree};
};

class JobRunner : public Poller {
 public:
  // What the time of a run is charged to: the job's counter and the user's quota. Both pointers may
  // be null, and outlive the run.
  struct Account {
    uint32_t uid = 0;                        // the user of its session
    std::atomic<int64_t>* job_ns = nullptr;  // what all runs of the job have taken together
    TimeQuota* quota = nullptr;              // the user's
  };
  struct PreparedJob {
    TransferId id;
    int32_t priority = 0;
    std::shared_ptr<const CompiledProgram> program;
    std::vector<absl::Span<std::byte>> memory;  // by buffer
    std::vector<Joint> joints;
    // If it is true, a firing that runs ends; outlives Disarm.
    const std::atomic<bool>* stop = nullptr;
    Account account = {};
  };
  // Has the lane hear a doorbell from now on, or not any more.
  using Listen = std::function<void(const Doorbell&, bool hear)>;
  // A firing could not be carried out; the job has no further one.
  using Failed = std::function<void(TransferId job, absl::Status why)>;

  static constexpr absl::Duration kSlice = absl::Milliseconds(10);
  static constexpr ptrdiff_t kFiringsAhead = 4;  // firings that are under way at a time

  // Bounds, in bytes, of what prepared jobs may keep of what they make of constant buffers: of one
  // session, and of all. A job that does not fit makes it anew in each firing. `of_all` also bounds
  // the scratch of runs that are put aside; a run that does not fit is not put aside.
  struct MostKept {
    uint64_t of_session = 0;
    uint64_t of_all = 0;
  };
  using Now = std::function<absl::Time()>;
  JobRunner(std::unique_ptr<Computer> computer, MostKept most_kept, Listen listen, Failed failed,
            Now now = MonotonicNow)
      : listen_(std::move(listen)),
        failed_(std::move(failed)),
        now_(std::move(now)),
        most_kept_(most_kept),
        computer_(std::move(computer)),
        scratch_(*computer_) {}

  // A job, or some sections of a job that waits for transfers in between. A job of several sections
  // brings its scratch; a job of a single section borrows the runner's.
  struct PostedJob {
    TransferId id;
    const CompiledProgram& program;
    Sections* sections = nullptr;                         // null: the program's only section
    absl::Span<const absl::Span<std::byte>> memory = {};  // by buffer
    absl::Span<std::byte> scratch = {};
    compute::HostProgram::StepOver step_over = nullptr;
    const std::atomic<bool>* stop = nullptr;  // if it is true, the job ends before its next launch
    const std::atomic<bool>* others = nullptr;  // whether posted jobs of other sessions wait
    compute::HostProgram::FromConstants* from_constants = nullptr;
    Account account = {};
    bool receives = false;  // whether it is joined to transfers that receive
  };
  // `left`: the work that is left if the job was put aside (the status is OK then), else 0; or
  // kNotBegun (the status is OK too): another job of its session was put aside, and has to go on
  // first.
  // RESOURCE_EXHAUSTED/DEVICE_MEMORY if there was no memory to lend. CANCELLED, with how far it
  // got, if it was stopped.
  using Over = std::function<void(absl::Status status, uint64_t left)>;
  static constexpr uint64_t kNotBegun = UINT64_MAX;
  // Runs the job, or goes on with a job that was put aside. `over` is called once: before Run
  // returns, or later, when the run is over. Until then the program, the buffers, the scratch and
  // what `step_over` uses must stay; `job` itself and its atomics only until Run returns.
  void Run(const PostedJob& job, Over over);
  // A job that was put aside will not go on.
  void Drop(TransferId job);
  // No job runs here, is put aside, or is armed: gives back what is held for the next one.
  void LetGo();
  // Waits until all runs are over, and calls no `Over`. Must be called before the memory of
  // sessions is unmapped. No job runs here afterwards.
  void Stop();
  // Tells whose posted jobs wait for the compute thread, so that a firing of another session is put
  // aside for them. `session`, `second`: two sessions with waiting jobs, so that one of them is not
  // the firing's own. 0: none. Any thread.
  void SetPostedWait(uint64_t session, uint64_t second) {
    posted_.store(session, std::memory_order_relaxed);
    posted_too_.store(second, std::memory_order_relaxed);
  }
  // From now on the jobs of a prepared batch may be fired, until Disarm. The batch, and the batches
  // that its jobs are joined to, must stay until then.
  void Arm(PreparedBatch& batch, std::vector<PreparedJob> jobs);
  // When it returns, no job of the batch runs, nor will.
  void Disarm(PreparedBatch& batch);

  // Tells of steps and runs that have ended. Begins one firing, if any may begin, and returns when
  // it is over, put aside or queued.
  bool Poll() override;
  bool Busy() const override { return !under_way_.empty(); }
  bool Watching() const override { return !batches_.empty(); }
  bool PrepareToPark() override;

  // True while a firing waits for its user's quota. No doorbell rings when the quota is free again,
  // so the thread must look at the clock.
  bool Restless() const override { return held_; }

  // The work (CompiledProgram::work) that counts as done in that time.
  uint64_t WorkIn(absl::Duration time) const {
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time)) * computer_->work_per_ns();
  }
  // See Computer. Any thread.
  size_t jobs_ahead() const { return computer_->jobs_ahead(); }
  // Bytes that prepared jobs keep: what MostKept bounds, for tests of the bounds.
  uint64_t kept_bytes() const { return kept_bytes_; }

  // How long all runs, firings too, have taken together. Any thread.
  absl::Duration run_time() const { return absl::Nanoseconds(run_ns_.load()); }

 private:
  struct Batch;
  struct ArmedJob;
  struct Slice;
  // A run that was put aside.
  struct RunAside {
    explicit RunAside(ScratchMaker& maker) : scratch(maker) {}
    compute::HostProgram::Aside aside;
    Scratch scratch;  // memory that was lent to it
  };
  struct Turn : FairQueue::Item {
    Turn(const PreparedJob& job, ArmedJob& armed)
        : FairQueue::Item(SessionOf(job.id).value(), job.priority, job.program->work),
          armed(armed) {}
    ArmedJob& armed;
  };
  struct ArmedJob {
    ArmedJob(PreparedJob job, Batch& batch, ScratchMaker& maker)
        : job(std::move(job)), batch(batch), kept_memory(maker) {}
    PreparedJob job;
    Batch& batch;
    uint64_t over = 0;  // firings that are over
    bool failed = false;
    uint64_t served = 0;       // the work that its last turn was served
    std::optional<Turn> turn;  // from when a firing waits for its turn until it is over
    std::unique_ptr<RunAside> aside_run;
    Scratch kept_memory;  // for what the job keeps, from the first firing on
    std::optional<compute::HostProgram::FromConstants> from_constants;
  };
  struct Batch {
    PreparedBatch& words;
    std::vector<std::unique_ptr<ArmedJob>> jobs;
  };
  // A run that is queued and not over.
  struct UnderWay {
    uint64_t number = 0;  // of the Computer
    absl::Time begun;
    uint64_t work = 0;
    Account account;
    absl::Duration took;        // once it is over
    ArmedJob* armed = nullptr;  // whose firing it is; null: a posted job
    Over over;                  // of a posted job
    ProfilerRange range;        // from its beginning until it is over
  };

  // A job of the batch whose next firing may begin and does not wait for its turn yet; null if
  // there is none.
  ArmedJob* FindReady(const Batch& batch) const;
  // Whether a firing of a session other than `session` may begin, or waits for its turn.
  bool OthersReady(SessionId session) const;
  // Whether the user of a batch has had more than his share of the time.
  bool IsOverQuota(const Batch& batch) const;
  // Whether a firing is wanted, and waits for its user's quota.
  bool QuotaHoldsFirings() const;
  // Whether another run of the job's session is put aside.
  bool IsHeldUp(TransferId job) const;
  // Whether one more firing may be begun now.
  bool HasRoom() const;
  // Begins a firing, or goes on with it.
  void Fire(ArmedJob& armed);
  // A firing is over, of which the last part took so long.
  void OnFired(ArmedJob& armed, absl::Duration took, absl::Status status);
  // Asks for the next firing of those batches that the job is joined to.
  static void Define(const ArmedJob& armed, absl::FunctionRef<bool(const Joint&)> which);
  // Sets `run.number` if the run is under way when RunSlice returns; the caller keeps `run` then.
  // If Computer::Do has begun it and did not leave it under way, all earlier runs are over and
  // their `Over` was called.
  absl::Status RunSlice(const PostedJob& job, std::unique_ptr<RunAside>& aside_run, UnderWay& run);
  // `lent`: the scratch is lent to the run.
  absl::Status RunWith(const PostedJob& job, absl::Span<std::byte> scratch, bool lent,
                       std::unique_ptr<RunAside>& aside_run);
  // Memory to lend to a run.
  absl::StatusOr<absl::Span<std::byte>> Lend(uint64_t bytes, RunAside* aside_run);
  // Tells of steps, and of the runs that have ended. False if there are no such runs. `also`: a run
  // that is over and was never under way; may be null.
  bool Reap(UnderWay* also = nullptr);
  // Tells of the oldest `count` runs that are under way.
  void EndRuns(size_t count, const absl::Status& status, UnderWay* also = nullptr);
  // Waits until nothing is under way, and tells of it.
  void Finish();
  // Counts the time of runs that were found to be over now, in their order. The
  // GPU does not say how long each of them took, so the time is split in proportion to their work.
  void CountTime(absl::Span<UnderWay* const> runs);
  // Frees what a run that was put aside holds.
  void LetGo(TransferId job, std::unique_ptr<RunAside>& aside_run);
  // Takes memory for what the job keeps, if the bounds allow it.
  void Keep(ArmedJob& armed);
  // Takes what the job keeps out of the counts.
  void Forget(const ArmedJob& armed);

  const Listen listen_;
  const Failed failed_;
  const Now now_;
  const MostKept most_kept_;
  // Bytes that jobs keep, of sessions where that is not 0.
  absl::flat_hash_map<SessionId, uint64_t> kept_;
  uint64_t kept_bytes_ = 0;  // bytes that the jobs of all sessions keep
  const std::unique_ptr<Computer> computer_;
  Scratch scratch_;
  absl::flat_hash_map<TransferId, std::unique_ptr<RunAside>>
      runs_aside_;            // posted jobs that are put aside
  uint64_t aside_bytes_ = 0;  // scratch of all runs that are put aside
  // The run that is put aside, of each session that has one
  absl::flat_hash_map<SessionId, TransferId> aside_;
  std::atomic<uint64_t> posted_{0}, posted_too_{0};
  std::vector<std::unique_ptr<Batch>> batches_;
  FairQueue ready_;
  std::deque<UnderWay> under_way_;  // in the order of their numbers
  bool held_ = false;               // whether a firing waits for its user's share
  size_t looks_ = 0;                // of Reap, in a row, that have found nothing over
  absl::Time last_over_ = absl::InfinitePast();
  std::atomic<int64_t> run_ns_{0};
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
