// SPDX-License-Identifier: Apache-2.0
// A JobTable on a session table of the test's. Programs are compiled, and jobs run, when the test
// says so; transfers are only played.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/job/job_table.h"
#include "tests/daemon/session_table_rig.h"

namespace ferry::testing {

inline constexpr char kHalf[] =
    "program 1\n"
    "buffer @x read 64\n"
    "buffer @y write 64\n"
    "%x = input @x : f32[16]\n"
    "%half = constant splat=0.5 : f32[16]\n"
    "%y = multiply %x, %half\n"
    "store @y, %y\n";

// Fails a run where the test says so, as a GPU does whose driver refuses a launch.
class RefusingComputer : public HostComputer {
 public:
  using HostComputer::HostComputer;
  absl::Status Do(const Run& run) override {
    if (!refuses) return HostComputer::Do(run);
    return Error(absl::StatusCode::kInternal, Reason::kInternal, "launch 8 blocks: refused");
  }
  bool refuses = false;
};

class JobTableTest : public ::testing::Test {
 protected:
  explicit JobTableTest(JobLimits limits = {},
                        SessionTable::Options options = SessionTableRig::DefaultOptions(),
                        JobRunner::MostKept most_kept = {uint64_t{1} << 30, uint64_t{1} << 31})
      : JobTableTest(std::make_unique<RefusingComputer>(limits.threads), limits, std::move(options),
                     most_kept) {}
  JobTableTest(std::unique_ptr<RefusingComputer> computer, JobLimits limits,
               SessionTable::Options options, JobRunner::MostKept most_kept)
      : computer_(computer.get()),
        rig_(std::move(options)),
        runner_(
            std::move(computer), most_kept,
            [this](const Doorbell&, bool hear) { heard_ += hear ? 1 : -1; },
            [this](TransferId job, absl::Status why) {
              rig_.control.Post(
                  [this, job, why = std::move(why)] { jobs_.OnFiringFailed(job, why); });
            }),
        jobs_({rig_.control, compiler_, {compute_, runner_}, {}}, rig_.devices.table, rig_.table,
              limits,
              {[this](const Ended& ended) { OnOver(ended); },
               [this](TransferId id) { return in_flight_.count(id) > 0; },
               [this](TransferId id, const absl::Status& why) { poisoned_[id] = why; },
               [this](absl::Span<const TransferSpec>) { return refused_; },
               [this](absl::Time, TransferId first, std::vector<TransferSpec> specs) {
                 for (size_t i = 0; i < specs.size(); ++i) {
                   posted_[MakeTransferId(SessionOf(first), SequenceOf(first) + i)] = specs[i];
                 }
               },
               [this](TransferId id) { defined_.push_back(id); }}) {}

  // Does with an ending what TransferDriver does.
  void OnOver(const Ended& ended) {
    ended_.push_back(ended);
    Session* session = rig_.table.Find(SessionOf(ended.transfer));
    session->OnEnded(ended);
    session->timelines().Flush();
    jobs_.OnOver(ended);
    rig_.table.OnIdle(*session);
  }
  // Start and end a transfer that the test plays.
  Ended StartTransfer(Session& session, ArenaId arena) {
    Ended ended = SessionTableRig::Start(session, arena);
    in_flight_.insert(ended.transfer);
    return ended;
  }
  void EndTransfer(Ended ended, absl::Status status = absl::OkStatus()) {
    in_flight_.erase(ended.transfer);
    ended.status = std::move(status);
    OnOver(ended);
    jobs_.Join();
  }

  CompileResult Compile(ProgramSource source, bool keep = true) {
    CompileResult made;
    jobs_.Compile(GlobalDeviceId(1), std::move(source), keep,
                  [&](CompileResult result) { made = std::move(result); });
    compiler_.RunAll();
    rig_.control.RunAll();
    return made;
  }
  std::string Fingerprint(const std::string& text = kHalf) {
    const CompileResult made = Compile(text);
    EXPECT_THAT(made.status, Is("OK"));
    return made.program == nullptr ? "" : made.program->fingerprint;
  }
  static Range At(ArenaId arena, uint64_t offset, uint64_t bytes = 64) {
    return {arena, offset, bytes};
  }
  struct Bound {
    std::string name;
    Range range;
    std::optional<compute::DType> type = std::nullopt;
  };
  static void AddRun(PostBatch& batch, std::string fingerprint, const std::vector<Bound>& bound) {
    batch.runs_programs = true;
    batch.device = GlobalDeviceId(1);
    JobSpec job{std::move(fingerprint), {}};
    std::vector<Range> ranges;
    for (const Bound& one : bound) {
      job.bindings.push_back({one.name, one.type});
      ranges.push_back(one.range);
    }
    TransferSpec spec;
    spec.layout = Layout(std::move(ranges));
    spec.bytes = spec.layout.bytes();
    batch.specs.push_back(std::move(spec));
    batch.jobs.push_back(std::move(job));
    batch.deadlines.push_back(absl::ZeroDuration());
    batch.size = batch.jobs.size();
  }
  PostBatch Half(ArenaId arena, uint64_t x = 0, uint64_t y = 64) {
    PostBatch batch;
    AddRun(batch, Fingerprint(), {{"x", At(arena, x)}, {"y", At(arena, y)}});
    return batch;
  }
  // Runs everything that was posted.
  void RunAll() {
    while (jobs_.Join() || compute_.RunAll() + rig_.control.RunAll() > 0) continue;
  }
  float* Floats(ArenaId arena, uint64_t offset) {
    return reinterpret_cast<float*>(rig_.table.FindArena(arena)->mapping->data() + offset);
  }
  static std::vector<std::string> Fields(const PostReply& reply) {
    std::vector<std::string> fields;
    for (const Violation& violation : reply.violations) {
      fields.push_back(absl::StrCat(violation.field, " ", NameOf(violation.status)));
    }
    return fields;
  }

  RefusingComputer* const computer_;
  SessionTableRig rig_;
  ManualExecutor compiler_, compute_;
  int heard_ = 0;  // doorbells that the compute thread hears
  JobRunner runner_;
  std::vector<Ended> ended_;
  std::set<TransferId> in_flight_;
  std::map<TransferId, absl::Status> poisoned_;
  std::vector<TransferEngine::EntryError> refused_;  // the errors that Hooks::check returns
  std::map<TransferId, TransferSpec> posted_;        // transfers that jobs have posted
  std::vector<TransferId> defined_;  // those of them that were defined, in this order
  JobTable jobs_;
};

}  // namespace ferry::testing
