// SPDX-License-Identifier: Apache-2.0
// Runs jobs, one at a time: those that are posted when it is told to, and between them those that
// are prepared, when words in shared memory say so. Firing n of a prepared job needs no task and no
// message: it begins when its client has stored n in the batch's 'defined' word and the batches of
// transfers that it is joined to allow it (MayBegin), and those it fires itself, each as soon as
// the plan's last step is over that needs their bytes. Where several may begin sessions share
// equally, by what their jobs cost. The threads of all jobs are here, one budget: the compute
// thread is one of them. A run that has lasted for kSlice while those of other sessions wait is put
// aside between two launches, and goes on when it is its turn again: nothing of its own session is
// run meanwhile, which may have the same memory.
//
// Home: compute. There it is a poller of the lane; a job that runs is waited for by all else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "compute/host/workers.h"
#include "daemon/compiled_program.h"
#include "daemon/scratch.h"
#include "device/lane.h"
#include "device/prepared_batch.h"
#include "transfer/fair_queue.h"

namespace ferry {

// A prepared batch of transfers that a prepared job fires.
struct Joint {
  PreparedBatch* batch = nullptr;
  bool sends = false;
  // After which step of the plan its next firing is defined.
  size_t step = kAtEnd;
  static constexpr size_t kAtEnd = SIZE_MAX;
};

// Whether firing `n` of a job of `batch` may begin, but for its turn. Any thread.
bool MayBegin(const PreparedBatch& batch, absl::Span<const Joint> joints, uint64_t n);

// A place where control hands a job to the compute thread: that begins it, unless control takes it
// back before. What was taken back is not touched any more. The place is free again when the
// compute thread is done with the job, or has skipped it.
class Handover {
 public:
  enum class State : uint8_t { kFree, kWaits, kBegun, kTakenBack };
  // Any thread.
  State state() const { return state_.load(std::memory_order_acquire); }
  // Control.
  void Hand() { state_.store(State::kWaits, std::memory_order_release); }
  bool TakeBack() { return Claim(State::kTakenBack); }
  void Free() { state_.store(State::kFree, std::memory_order_relaxed); }
  // The compute thread.
  bool Begin() { return Claim(State::kBegun); }

 private:
  // False if the other one came first.
  bool Claim(State state) {
    State waits = State::kWaits;
    return state_.compare_exchange_strong(waits, state, std::memory_order_acq_rel);
  }
  std::atomic<State> state_{State::kFree};
};

class JobRunner : public Poller {
 public:
  struct PreparedJob {
    TransferId id;
    int32_t priority = 0;
    std::shared_ptr<const CompiledProgram> program;
    std::vector<absl::Span<std::byte>> memory;  // by buffer
    std::vector<Joint> joints;
    const std::atomic<bool>* stop = nullptr;  // if so, a firing that runs ends; there until Disarm
  };
  // Hears a doorbell from now on, or does not any more.
  using Listen = std::function<void(const Doorbell&, bool hear)>;
  // A firing could not be carried out; the job has none any more.
  using Failed = std::function<void(TransferId job, absl::Status why)>;

  static constexpr absl::Duration kSlice = absl::Milliseconds(10);

  // Bytes that prepared jobs may keep of what they make of constant buffers; who comes later makes
  // it anew each time. As much as `of_all` may be the scratch of runs that are put aside; what does
  // not fit runs on.
  struct MostKept {
    uint64_t of_session = 0;
    uint64_t of_all = 0;
  };
  // `threads`: as many as programs are compiled for.
  JobRunner(size_t threads, MostKept most_kept, Listen listen, Failed failed)
      : listen_(std::move(listen)),
        failed_(std::move(failed)),
        most_kept_(most_kept),
        workers_(threads) {}

  // A posted job, or a stage of one that waits for transfers between them. That has memory of its
  // own, until it is over; what has one stage only is lent some.
  struct Posted {
    TransferId id;
    const CompiledProgram& program;
    size_t stage = 0;
    absl::Span<const absl::Span<std::byte>> memory = {};  // by buffer
    absl::Span<std::byte> scratch = {};
    compute::HostProgram::StepOver step_over = nullptr;
    const std::atomic<bool>* stop = nullptr;    // if so, it ends before its next launch
    const std::atomic<bool>* others = nullptr;  // posted ones of other sessions wait
    compute::HostProgram::Kept* kept = nullptr;
  };
  // Runs it now, or goes on with it. RESOURCE_EXHAUSTED/DEVICE_MEMORY if there is no memory to
  // lend; CANCELLED, with how far it has got, if it was stopped. With OK `left` is what it still
  // costs, if it was put aside; else 0.
  absl::Status Run(const Posted& job, uint64_t& left);
  // A job that was put aside does not go on.
  void Drop(TransferId job);
  // Of which sessions posted jobs wait for the compute thread, for a firing; 0: none, or no second
  // one. Any thread.
  void SetPostedWait(uint64_t session, uint64_t second) {
    posted_.store(session, std::memory_order_relaxed);
    posted_too_.store(second, std::memory_order_relaxed);
  }
  // All jobs of a prepared batch may be fired from now on, until Disarm. The batch, and those that
  // the jobs are joined to, stay until then.
  void Arm(PreparedBatch& batch, std::vector<PreparedJob> jobs);
  // None of its jobs runs, or will.
  void Disarm(PreparedBatch& batch);

  // Begins one firing, if any may begin, and is back when it is over.
  bool Poll() override;
  bool Busy() const override { return false; }
  bool Watching() const override { return !batches_.empty(); }
  bool PrepareToPark() override;

  // That prepared jobs keep.
  uint64_t kept_bytes() const { return kept_bytes_; }

  // Of all runs, those of firings too. Any thread.
  absl::Duration run_time() const { return absl::Nanoseconds(run_ns_.load()); }

 private:
  struct Batch;
  struct Armed;
  struct Slice;
  // A run that is put aside.
  struct Held {
    compute::HostProgram::Aside aside;
    Scratch scratch;  // that was lent to it
  };
  struct Turn : FairQueue::Item {
    Turn(const PreparedJob& job, Armed& armed)
        : FairQueue::Item(SessionOf(job.id).value(), job.priority, job.program->work),
          armed(armed) {}
    Armed& armed;
  };
  struct Armed {
    Armed(PreparedJob job, Batch& batch) : job(std::move(job)), batch(batch) {}
    PreparedJob job;
    Batch& batch;
    uint64_t over = 0;  // firings
    bool failed = false;
    std::optional<Turn> turn;  // from when it waits for it until its firing is over
    std::unique_ptr<Held> held;
    Scratch kept_memory;  // from the first firing on
    std::optional<compute::HostProgram::Kept> kept;
  };
  struct Batch {
    PreparedBatch& words;
    std::vector<std::unique_ptr<Armed>> jobs;
  };

  // A job of the batch whose next firing may begin and does not wait for its turn yet.
  Armed* FindReady(const Batch& batch) const;
  // Whether a firing of another session may begin, or waits for its turn.
  bool OthersReady(SessionId session) const;
  // Whether another run of the job's session is put aside.
  bool IsHeldUp(TransferId job) const;
  // What is left of it, if it was put aside.
  uint64_t Fire(Armed& armed);
  absl::Status RunSlice(const Posted& job, std::unique_ptr<Held>& held);
  // It is not put aside any more.
  void LetGo(TransferId job, std::unique_ptr<Held>& held);
  // Memory for what the job keeps, if there is any for it.
  void Keep(Armed& armed);
  // What it kept counts no more.
  void Forget(const Armed& armed);

  const Listen listen_;
  const Failed failed_;
  const MostKept most_kept_;
  absl::flat_hash_map<SessionId, uint64_t> kept_;  // bytes; of those that keep any
  uint64_t kept_bytes_ = 0;                        // of all
  compute::Workers workers_;
  Scratch scratch_;
  absl::flat_hash_map<TransferId, std::unique_ptr<Held>> held_;  // posted jobs
  uint64_t held_bytes_ = 0;                           // scratch of all that are put aside
  absl::flat_hash_map<SessionId, TransferId> aside_;  // of each session the run that is put aside
  std::atomic<uint64_t> posted_{0}, posted_too_{0};
  std::vector<std::unique_ptr<Batch>> batches_;
  FairQueue ready_;
  std::atomic<int64_t> run_ns_{0};
};

}  // namespace ferry
