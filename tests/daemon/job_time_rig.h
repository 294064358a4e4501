// SPDX-License-Identifier: Apache-2.0
// A JobQueue and its JobRunner over a computer that is played: clock, threads and computer are the
// test's. A run takes the time that the test says, whatever its program's estimate is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/job/job_queue.h"
#include "device/timeline.h"
#include "tests/daemon/job_table_rig.h"

namespace ferry::testing {

inline constexpr absl::Duration kMs = absl::Milliseconds(1);

// A run takes what is said of its session. With `lags` it is under way until over_ says otherwise,
// which with `is_quick` it does when Do returns; without `begins` it has nothing to queue. A run
// that lags has one step. A run of a session of `puts_aside` is put aside as often as is said
// there; with `asks`, any run that is wanted to be.
class FakeComputer : public Computer {
 public:
  FakeComputer(ManualExecutor& clock, size_t jobs_ahead) : clock_(clock), ahead_(jobs_ahead) {}

  absl::Status Do(const Run& run) override {
    if (begins) ++begun_;
    if (begins && lags && run.may_lag) {
      if (run.step_over) untold_.push_back(run.step_over);
      if (is_quick) EndAll();
      return absl::OkStatus();
    }
    const uint64_t session = SessionOf(run.job).value();
    clock_.Advance(takes[session]);
    keeps.push_back(run.from_constants != nullptr);
    if (begins) over_ = begun_;
    run.aside.put = puts_aside[session] > 0;
    if (run.aside.put) --puts_aside[session];
    if (asks) run.aside.put = run.aside.wanted();
    return absl::OkStatus();
  }
  absl::Status Tell() override {
    if (tells.ok() && over_ == begun_) {
      for (const auto& step_over : std::exchange(untold_, {})) step_over(0);
    }
    return tells;
  }
  absl::Status Await() override {
    over_ = begun_;
    return absl::OkStatus();
  }
  uint64_t begun() const override { return begun_; }
  uint64_t over() const override { return over_; }
  void EndAll() { over_ = begun_; }
  size_t jobs_ahead() const override { return ahead_; }
  uint64_t work_per_ns() const override { return 10; }
  absl::StatusOr<std::byte*> Make(uint64_t bytes) override {
    return static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  }
  void Free(std::byte* memory, uint64_t) override { std::free(memory); }

  std::map<uint64_t, absl::Duration> takes;  // by session
  std::map<uint64_t, int> puts_aside;        // by session
  std::vector<bool> keeps;                   // by run: whether it has memory for constants
  bool lags = false, is_quick = false, begins = true, asks = false;
  absl::Status tells;

 private:
  std::vector<compute::HostProgram::StepOver> untold_;  // of runs that lag
  ManualExecutor& clock_;
  const size_t ahead_;
  uint64_t begun_ = 0, over_ = 0;
};

class JobTimeTest : public ::testing::Test {
 protected:
  explicit JobTimeTest(size_t jobs_ahead = 2, const std::string& program = kHalf,
                       JobRunner::MostKept most_kept = {})
      : ahead_(jobs_ahead),
        program_(CompileProgram(program, {}).program),
        devices_({1}),
        runner_(
            MakeComputer(), most_kept, [](const Doorbell&, bool) {},
            [](TransferId, absl::Status) {}, [this] { return control_.Now(); }),
        queue_(
            {control_, compute_, runner_}, jobs_,
            {[](const Job&) { return std::vector<absl::Span<std::byte>>(2); },
             [](const Job&) { return absl::Span<std::byte>(); }, [](const Job&) { return nullptr; },
             [this](Job& job, const absl::Status& status) {
               EXPECT_THAT(status, Is("OK"));
               ran_.push_back(job.id);
               time_[SessionOf(job.id).value()] += job.run_time().host;
               jobs_.erase(job.id);
             }}) {}
  std::unique_ptr<Computer> MakeComputer() {
    auto computer = std::make_unique<FakeComputer>(control_, ahead_);
    computer_ = computer.get();
    return computer;
  }

  // A job that is ready. Each session is its own user, of the same number. `estimated`: what it is
  // likely to take; zero: what its program is.
  Job& Post(uint32_t session, absl::Duration estimated = absl::ZeroDuration()) {
    const uint64_t work =
        estimated == absl::ZeroDuration() ? program_->work : runner_.WorkIn(estimated);
    auto made = std::make_unique<Job>(session, 0, work);
    Job& job = *made;
    job.id = MakeTransferId(SessionId(session), ++sequence_);
    job.device = devices_.table.Find(GlobalDeviceId(1));
    job.program = program_;
    job.spec.uid = session;
    job.quota = &quotas_.Of(session);
    jobs_[job.id] = std::move(made);
    queue_.Add(job);
    return job;
  }
  void Post(uint32_t session, int count) {
    for (int i = 0; i < count; ++i) Post(session);
  }
  // What is at the compute thread runs, and what follows is handed to it.
  void Turn() {
    compute_.RunAll();
    control_.RunAll();
  }
  size_t Waiting(uint32_t session) const {
    return static_cast<size_t>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
      return SessionOf(entry.first) == SessionId(session);
    }));
  }
  // The sessions of the jobs that have run, in their order.
  std::vector<uint32_t> Ran() const {
    std::vector<uint32_t> sessions;
    for (const TransferId id : ran_) sessions.push_back(SessionOf(id).value());
    return sessions;
  }

  const size_t ahead_;
  const std::shared_ptr<const CompiledProgram> program_;
  Devices devices_;
  ManualExecutor control_, compute_;
  FakeComputer* computer_ = nullptr;
  TimeQuotas quotas_;
  Jobs jobs_;
  JobRunner runner_;
  JobQueue queue_;
  uint64_t sequence_ = 0;
  std::vector<TransferId> ran_;
  std::map<uint64_t, absl::Duration> time_;  // by session
};

}  // namespace ferry::testing
