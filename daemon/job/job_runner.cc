// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/job_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/executor.h"
#include "base/flight_recorder.h"

namespace ferry {

namespace {

// Of a GPU that tells of its runs by a word: how often that is looked at before the driver is asked
// whether one has failed.
constexpr size_t kLooks = 64;
// And how often before it is asked which steps are over.
constexpr size_t kLooksAtSteps = 8;
static_assert(kLooks % kLooksAtSteps == 0);

static_assert(GpuComputer::kJobsAhead + JobRunner::kFiringsAhead < GpuComputer::kMostUnderWay);

// Whether the plan goes on after the step that the joint waits for.
bool IsEarly(const Joint& joint, const CompiledProgram& program) {
  return joint.step != Joint::kAtEnd && joint.step + 1 < program.steps().steps.size();
}

}  // namespace

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
  const uint64_t before;            // the number of the run before it, of the Computer
  absl::Time until = runner.now_() + kSlice;

  bool IsOver() {
    if (!fits || (!PostedWait() && runner.batches_.empty())) return false;
    const absl::Time now = runner.now_();
    if (runner.computer_->over() < before) until = now + kSlice;  // it has not begun yet
    if (now < until) return false;
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

void JobRunner::Run(const PostedJob& job, Over over) {
  home_.Check();
  if (!under_way_.empty()) Reap();  // Poll may be a long way off
  if (IsHeldUp(job.id)) return over(absl::OkStatus(), kNotBegun);
  const auto found = runs_aside_.find(job.id);
  std::unique_ptr<RunAside> aside_run;
  if (found != runs_aside_.end()) {
    aside_run = std::move(found->second);
    runs_aside_.erase(found);
  }
  UnderWay run;
  const uint64_t before = computer_->launches();
  absl::Status status = RunSlice(job, aside_run, run);
  if (const uint64_t launches = computer_->launches() - before; launches > 0) {
    FlightRecorder::Get().Record("job.launched", job.id, computer_->begun(), launches);
  }
  if (run.number > 0) {
    run.over = std::move(over);
    under_way_.push_back(std::move(run));
    return;
  }
  uint64_t left = 0;
  if (aside_run != nullptr) {
    left = job.program.WorkLeft(aside_run->aside);
    runs_aside_[job.id] = std::move(aside_run);
  }
  over(std::move(status), left);
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
  FERRY_CHECK(runs_aside_.empty() && batches_.empty() && under_way_.empty());
  scratch_.Shrink(0);
  computer_->LetGo();
}

void JobRunner::Stop() {
  home_.Check();
  computer_->Await().IgnoreError();  // control, which would hear of steps, has ended
  under_way_.clear();
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

absl::StatusOr<absl::Span<std::byte>> JobRunner::Lend(uint64_t bytes, RunAside* aside_run) {
  Scratch& scratch = aside_run != nullptr ? aside_run->scratch : scratch_;
  // Runs that are under way may use what Get would give back.
  if (scratch.bytes() > 0 && bytes > scratch.bytes()) Finish();
  return scratch.Get(bytes);
}

absl::Status JobRunner::RunSlice(const PostedJob& job, std::unique_ptr<RunAside>& aside_run,
                                 UnderWay& run) {
  run.begun = now_();
  run.work = job.program.work;
  run.account = job.account;
  run.range = ProfilerRange([&] {
    return absl::StrCat("job ", SessionOf(job.id).value(), "/", SequenceOf(job.id), ", program ",
                        absl::BytesToHexString(job.program.fingerprint.substr(0, 8)));
  });
  const bool lent = job.program.transfers.empty();
  const uint64_t kept = job.from_constants != nullptr ? job.program.from_constants_bytes() : 0;
  const uint64_t bytes = lent ? job.program.scratch_bytes() - kept : 0;
  absl::StatusOr<absl::Span<std::byte>> scratch = job.scratch;
  if (lent) scratch = Lend(bytes, aside_run.get());
  absl::Status status = scratch.status();
  const bool runs = status.ok();
  const uint64_t before = computer_->begun();
  if (runs) status = RunWith(job, *scratch, lent, aside_run);
  const bool begun = computer_->begun() > before;
  if (begun && status.ok() && aside_run == nullptr) {
    if (computer_->over() < computer_->begun()) {
      run.number = computer_->begun();
      return status;
    }
    status = computer_->Tell();  // it may have lagged, and be over by now, with steps untold
  }
  // What was not begun has had none of the time of those that are under way.
  if (begun || under_way_.empty()) Reap(runs ? &run : nullptr);
  if (under_way_.empty()) scratch_.Shrink();
  return status;
}

absl::Status JobRunner::RunWith(const PostedJob& job, absl::Span<std::byte> scratch, bool lent,
                                std::unique_ptr<RunAside>& aside_run) {
  compute::RunControl::MayGoOn may_go_on;
  if (job.stop != nullptr) {
    may_go_on = [stop = job.stop] { return !stop->load(std::memory_order_relaxed); };
  }
  // A run that is put aside takes along all of the scratch, also what a larger run left there.
  const uint64_t bytes = lent ? scratch_.bytes() : 0;
  const bool fits = aside_run != nullptr || (aside_bytes_ <= most_kept_.of_all &&
                                             bytes <= most_kept_.of_all - aside_bytes_);
  Slice slice{*this, SessionOf(job.id).value(), job.others, fits, computer_->begun()};
  compute::HostProgram::Aside aside;
  if (aside_run != nullptr) aside = std::move(aside_run->aside);
  aside.wanted = [&slice] { return slice.IsOver(); };
  // A run that was put aside has scratch of its own, which goes when it is over.
  const absl::Status status =
      computer_->Do({job.id, job.account.uid, job.program, job.sections, job.memory, scratch,
                     job.step_over, may_go_on, job.from_constants, aside,
                     job.receives || job.program.receives(), aside_run == nullptr});
  if (!status.ok() || !aside.put) {
    LetGo(job.id, aside_run);
    return status;
  }
  if (aside_run == nullptr) {
    aside_run = std::make_unique<RunAside>(*computer_);
    if (lent) aside_run->scratch.Swap(scratch_);
    aside_bytes_ += aside_run->scratch.bytes();
    aside_[SessionOf(job.id)] = job.id;
  }
  aside_run->aside = std::move(aside);
  return status;
}

void JobRunner::CountTime(absl::Span<UnderWay* const> runs) {
  if (runs.empty()) return;
  const absl::Time now = now_();
  // Of runs that were queued ahead no time counts twice.
  const absl::Duration all = now - std::max(runs.front()->begun, std::exchange(last_over_, now));
  run_ns_.fetch_add(absl::ToInt64Nanoseconds(all), std::memory_order_relaxed);
  double work = 0;
  for (const UnderWay* run : runs) work += static_cast<double>(std::max<uint64_t>(run->work, 1));
  for (UnderWay* const run : runs) {
    run->took = all * (static_cast<double>(std::max<uint64_t>(run->work, 1)) / work);
    const Account& account = run->account;
    if (account.job_ns != nullptr) {
      account.job_ns->fetch_add(absl::ToInt64Nanoseconds(run->took), std::memory_order_relaxed);
    }
    if (account.quota != nullptr) account.quota->Charge(now, run->took);
  }
}

bool JobRunner::Reap(UnderWay* also) {
  const uint64_t over = under_way_.empty() ? 0 : computer_->over();
  size_t count = 0;
  while (count < under_way_.size() && under_way_[count].number <= over) ++count;
  absl::Status status;
  if (count > 0) {
    status = computer_->Tell();
  } else if (also == nullptr) {
    if (under_way_.empty()) return false;
    if (++looks_ % kLooksAtSteps == 0) status = computer_->Tell();
    if (looks_ >= kLooks) {
      looks_ = 0;
      status.Update(computer_->Look());
    }
    if (status.ok()) return false;
  }
  if (!status.ok()) {
    computer_->Await().IgnoreError();  // no step is told of after its run has failed
    count = under_way_.size();
  }
  looks_ = 0;
  EndRuns(count, status, also);
  return true;
}

void JobRunner::EndRuns(size_t count, const absl::Status& status, UnderWay* also) {
  std::vector<UnderWay> ended;
  for (; count > 0; --count) {
    ended.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
  }
  std::vector<UnderWay*> runs;
  for (UnderWay& run : ended) runs.push_back(&run);
  if (also != nullptr) runs.push_back(also);
  CountTime(runs);
  for (const UnderWay& run : ended) {
    if (run.armed != nullptr) {
      OnFired(*run.armed, run.took, status);
    } else {
      run.over(status, 0);
    }
  }
  if (under_way_.empty()) scratch_.Shrink();
}

void JobRunner::Finish() {
  if (under_way_.empty()) return;
  const absl::Status status = computer_->Await();
  EndRuns(under_way_.size(), status);
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
  Finish();
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
  if (!batch.words.Wants(n) || IsOverQuota(batch)) return nullptr;
  for (const std::unique_ptr<ArmedJob>& armed : batch.jobs) {
    if (armed->over < n && !armed->failed && !armed->turn && !IsHeldUp(armed->job.id) &&
        MayBegin(batch.words, armed->job.joints, n)) {
      return armed.get();
    }
  }
  return nullptr;
}

bool JobRunner::IsOverQuota(const Batch& batch) const {
  const TimeQuota* const quota = batch.jobs.front()->job.account.quota;
  return quota != nullptr && quota->until() != absl::InfinitePast() && quota->IsOver(now_());
}

bool JobRunner::QuotaHoldsFirings() const {
  return std::any_of(batches_.begin(), batches_.end(), [this](const auto& batch) {
    return batch->words.Wants(batch->words.firings() + 1) && IsOverQuota(*batch);
  });
}

bool JobRunner::OthersReady(SessionId session) const {
  return ready_.HasOthers(session.value()) ||
         std::any_of(batches_.begin(), batches_.end(), [&](const auto& batch) {
           return SessionOf(batch->jobs.front()->job.id) != session && FindReady(*batch) != nullptr;
         });
}

bool JobRunner::HasRoom() const {
  return std::count_if(under_way_.begin(), under_way_.end(),
                       [](const UnderWay& run) { return run.armed != nullptr; }) < kFiringsAhead;
}

bool JobRunner::Poll() {
  home_.Check();
  const bool ended = Reap();
  held_ = QuotaHoldsFirings();
  for (const std::unique_ptr<Batch>& batch : batches_) {
    while (ArmedJob* const armed = FindReady(*batch)) {
      ready_.Add(armed->turn.emplace(armed->job, *armed));
    }
  }
  while (!ready_.empty() && HasRoom()) {
    Turn& turn = static_cast<Turn&>(*ready_.Next());
    ArmedJob& armed = turn.armed;
    // FindReady finds it again when the other run is over, or its user's share has come.
    const bool over_quota = IsOverQuota(armed.batch);
    if (IsHeldUp(armed.job.id) || over_quota) {
      held_ = held_ || over_quota;
      ready_.Remove(turn);
      armed.turn.reset();
      continue;
    }
    armed.served = turn.left();
    ready_.Serve(armed.served);
    Fire(armed);
    return true;
  }
  return ended;
}

bool JobRunner::PrepareToPark() {
  home_.Check();
  held_ = QuotaHoldsFirings();  // one may have come since Poll
  // Without room there is nothing to do before a run is over, for which Busy() has the lane look.
  return !HasRoom() || (ready_.empty() &&
                        std::none_of(batches_.begin(), batches_.end(), [this](const auto& batch) {
                          return FindReady(*batch) != nullptr;
                        }));
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

void JobRunner::Fire(ArmedJob& armed) {
  const PreparedJob& job = armed.job;
  if (armed.aside_run == nullptr) {
    armed.batch.words.Begin(armed.over + 1);
    // Only when a firing begins: one that goes on finds what it made of constants in the scratch
    // that it was put aside with, not in memory that it would get now.
    Keep(armed);
  }
  compute::HostProgram::StepOver step_over;
  if (std::any_of(job.joints.begin(), job.joints.end(),
                  [&](const Joint& joint) { return IsEarly(joint, *job.program); })) {
    step_over = [&armed](size_t step) {
      Define(armed, [&](const Joint& joint) {
        return joint.step == step && IsEarly(joint, *armed.job.program);
      });
    };
  }
  UnderWay run;
  run.armed = &armed;
  absl::Status status =
      RunSlice({.id = job.id,
                .program = *job.program,
                .memory = job.memory,
                .step_over = std::move(step_over),
                .stop = job.stop,
                .from_constants = armed.from_constants ? &*armed.from_constants : nullptr,
                .account = job.account,
                .receives = std::any_of(job.joints.begin(), job.joints.end(),
                                        [](const Joint& joint) { return !joint.sends; })},
               armed.aside_run, run);
  if (run.number > 0) {
    under_way_.push_back(std::move(run));
  } else if (status.ok() && armed.aside_run != nullptr) {
    const uint64_t left = job.program->WorkLeft(armed.aside_run->aside);
    ready_.Return(*armed.turn, left);
    ready_.Charge(*armed.turn, armed.served - std::min(left, armed.served), WorkIn(run.took));
  } else {
    OnFired(armed, run.took, std::move(status));
  }
}

void JobRunner::Define(const ArmedJob& armed, absl::FunctionRef<bool(const Joint&)> which) {
  const uint64_t n = armed.over + 1;
  for (const Joint& joint : armed.job.joints) {
    if (which(joint)) joint.batch->Define(joint.sends ? n : n + 1);
  }
}

void JobRunner::OnFired(ArmedJob& armed, absl::Duration took, absl::Status status) {
  ready_.Charge(*armed.turn, armed.served, WorkIn(took));
  armed.turn.reset();
  if (!status.ok()) {
    armed.failed = true;
    failed_(armed.job.id, std::move(status));
    return;
  }
  Define(armed, [&](const Joint& joint) { return !IsEarly(joint, *armed.job.program); });
  armed.batch.words.Over(++armed.over, 1);
}

}  // namespace ferry
