// SPDX-License-Identifier: Apache-2.0
#include "daemon/job_table.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr absl::Duration kCompileRetry = absl::Milliseconds(100);

absl::Status InvalidRun(const std::string& text, Reason reason = Reason::kFieldInvalid) {
  return Error(absl::StatusCode::kInvalidArgument, reason, text);
}

// Of what waits for something that has failed.
absl::Status PoisonedBy(TransferId cause, const absl::Status& status) {
  return Error(absl::StatusCode::kAborted, Reason::kPoisoned,
               absl::StrCat("transfer ", SequenceOf(cause), ", which was waited for, failed: ",
                            ReasonName(ReasonOf(status)), ": ", status.message()));
}

// What a job is to its session's share, in the bytes that are copied in the same time, roughly.
uint64_t ShareOf(const CompiledProgram& program) {
  const compute::Cost& cost = program.cost;
  constexpr uint64_t kBytesOfTranscendental = 8;
  uint64_t share = compute::SaturatingAdd(cost.bytes_read, cost.bytes_written);
  share = compute::SaturatingAdd(share, cost.flops);
  return compute::SaturatingAdd(
      share,
      std::min(cost.transcendentals, UINT64_MAX / kBytesOfTranscendental) * kBytesOfTranscendental);
}

}  // namespace

JobTable::JobTable(Homes homes, LocalDevices& devices, SessionTable& sessions, JobLimits limits,
                   Hooks hooks)
    : homes_(homes),
      devices_(devices),
      sessions_(sessions),
      limits_(limits),
      hooks_(std::move(hooks)) {}

absl::Status JobTable::CheckDevice(GlobalDeviceId id) const {
  const LocalDevice* device = devices_.Find(id);
  if (device == nullptr) {
    return InvalidRun(absl::StrCat(id.ToString(), " is not a device of this daemon"),
                      Reason::kDeviceUnknown);
  }
  if (device->gpu == nullptr) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
               absl::StrCat(id.ToString(), " is a GPU; programs run on host devices only"));
}

void JobTable::Compile(GlobalDeviceId device, ProgramSource source, bool keep,
                       std::function<void(CompileResult)> done) {
  CompileResult refused;
  refused.status = Annotate(CheckDevice(device), "compile a program");
  if (refused.status.ok() && compiling_ == kMostCompiling) {
    refused.status =
        WithRetryAfter(Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                             absl::StrCat("compile a program: ", compiling_, " others wait")),
                       kCompileRetry);
  }
  if (!refused.status.ok()) return done(std::move(refused));
  ++compiling_;
  homes_.compiler.Post([this, source = std::move(source), keep, done = std::move(done)]() mutable {
    CompileResult result = CompileProgram(source, limits_);
    homes_.control.Post([this, keep, result = std::move(result), done = std::move(done)]() mutable {
      --compiling_;
      ++(result.status.ok() ? counts_.compiled : counts_.refused_programs);
      if (keep && result.status.ok()) {
        result.program = programs_.Add(std::move(result.program));
      }
      done(std::move(result));
    });
  });
}

PostReply JobTable::Post(Session& session, PostBatch batch) {
  if (std::optional<PostReply> before = session.FindRequest(batch)) return *std::move(before);
  PostReply reply;
  if (draining_) {
    reply.status = Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                         "post jobs: the daemon drains and takes no new ones");
    return reply;
  }
  reply.violations = std::move(batch.violations);
  std::vector<BoundJob> bound;
  if (absl::Status device = CheckDevice(batch.device); !device.ok()) {
    reply.violations.push_back({"device_id", std::move(device)});
  } else {
    for (Violation& violation : session.CheckAndComplete(batch, homes_.control.Now())) {
      reply.violations.push_back(std::move(violation));
    }
    bound = BindJobs(session, batch, programs_, reply.violations);
  }
  if (!reply.violations.empty()) {
    reply.status = RefusedBatch(reply.violations, batch.size);
    return reply;
  }
  reply = session.Admit(batch);
  session.RememberRequest(batch, reply);
  for (size_t i = 0; i < batch.jobs.size(); ++i) {
    Add(session.id(), reply, i, batch, std::move(bound[i]));
  }
  Pump();
  return reply;
}

void JobTable::Add(SessionId session, const PostReply& reply, size_t index, PostBatch& batch,
                   BoundJob bound) {
  TransferSpec& spec = batch.specs[index];
  const JobSpec& given = batch.jobs[index];
  auto made = std::make_unique<Job>(session.value(), spec.priority, ShareOf(*bound.program));
  Job& job = *made;
  job.id = MakeTransferId(session, reply.first_transfer_id + index);
  job.device = devices_.Find(batch.device);
  job.program = std::move(bound.program);
  job.memory = std::move(bound.memory);
  job.spec = std::move(spec);
  job.after = given.after;
  job.feeds = given.feeds;
  job.defines_timeline = given.defines_timeline;
  job.defines_value = given.defines_value;
  job.posted = homes_.control.Now();
  jobs_[job.id] = std::move(made);
  deadlines_.emplace(job.spec.deadline, job.id);
  if (!job.spec.defined) Watch(job);
  if (job.after.count > 0) {
    joining_.push_back(job.id);
  } else {
    ReadyIfSo(job);
  }
}

bool JobTable::Join() {
  const bool any = !joining_.empty();
  while (!joining_.empty()) {
    const TransferId id = joining_.back();
    joining_.pop_back();
    const auto found = jobs_.find(id);
    if (found != jobs_.end()) Advance(*found->second);
  }
  if (any) Pump();
  return any;
}

void JobTable::Advance(Job& job) {
  const Session& session = *sessions_.Find(SessionOf(job.id));
  job.awaited.reset();
  for (; job.after.count > 0; ++job.after.first, --job.after.count) {
    const TransferId id = MakeTransferId(session.id(), job.after.first);
    if (jobs_.contains(id) || hooks_.in_flight(id)) {
      awaited_[id].insert(job.id);
      job.awaited = id;
      return;
    }
    if (std::optional<absl::Status> failure = session.FindFailure(job.after.first)) {
      return End(job, PoisonedBy(id, *failure));
    }
    if (job.after.first <= session.forgotten_failures()) {
      return End(job, Error(absl::StatusCode::kAborted, Reason::kPoisoned,
                            absl::StrCat("transfer ", job.after.first,
                                         " is over, but how it ended is not known any more")));
    }
  }
  ReadyIfSo(job);
}

void JobTable::OnOver(const Ended& ended) {
  const auto found = awaited_.find(ended.transfer);
  if (found == awaited_.end()) return;
  joining_.insert(joining_.end(), found->second.begin(), found->second.end());
  awaited_.erase(found);
}

void JobTable::Watch(Job& job) {
  const DefinedWord word =
      sessions_.Find(SessionOf(job.id))->timelines().Defined(job.spec.defined_timeline);
  Lane* const lane = job.device->lane.get();
  lane->Post([this, lane, word, id = job.id, value = job.spec.defined_value] {
    lane->WatchWord(id, word, value, [this](TransferId reached) {
      homes_.control.PostOrRun([this, reached] { OnDefined(reached); });
    });
  });
}

void JobTable::OnDefined(TransferId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;  // it ended while this was on its way
  found->second->spec.defined = true;
  ReadyIfSo(*found->second);
  Pump();
}

void JobTable::ReadyIfSo(Job& job) {
  if (!job.spec.defined || job.after.count > 0) return;
  job.state = State::kReady;
  ready_.Add(job);
}

void JobTable::Pump() {
  while (running_ < kAtOnce && !ready_.empty()) {
    Job& job = static_cast<Job&>(*ready_.Next());
    ready_.Serve(job.left());
    Launch(job);
  }
}

void JobTable::Launch(Job& job) {
  std::vector<absl::Span<std::byte>> memory;
  for (const Range& range : job.memory) {
    const Arena* arena = sessions_.FindArena(range.arena);
    FERRY_CHECK(arena != nullptr);  // the job holds it
    memory.emplace_back(arena->mapping->data() + range.offset, range.length);
  }
  job.state = State::kRunning;
  deadlines_.erase({job.spec.deadline, job.id});
  ++running_;
  FlightRecorder::Get().Record("job.run", job.id, job.spec.bytes, job.program->scratch_bytes());
  homes_.compute.Post([this, id = job.id, program = job.program, memory = std::move(memory)] {
    const absl::Time begun = MonotonicNow();
    absl::StatusOr<absl::Span<std::byte>> scratch = scratch_.Get(program->scratch_bytes());
    if (scratch.ok()) program->Run(memory, *scratch);
    scratch_.Shrink();
    homes_.control.PostOrRun([this, id, status = scratch.status(), took = MonotonicNow() - begun] {
      OnRan(id, status, took);
    });
  });
}

void JobTable::OnRan(TransferId id, absl::Status status, absl::Duration took) {
  --running_;
  counts_.run += took;
  End(*jobs_.find(id)->second, std::move(status));
  Pump();
}

void JobTable::End(Job& job, absl::Status status) {
  if (job.state == State::kWaiting && !job.spec.defined) {
    Lane* const lane = job.device->lane.get();
    lane->Post([lane, id = job.id] { lane->Unwatch(id); });
  }
  if (job.awaited) {
    const auto found = awaited_.find(*job.awaited);
    if (found != awaited_.end() && found->second.erase(job.id) > 0 && found->second.empty()) {
      awaited_.erase(found);
    }
  }
  if (job.state == State::kReady) ready_.Remove(job);
  if (job.state != State::kRunning) deadlines_.erase({job.spec.deadline, job.id});
  ++(status.ok() ? counts_.ok : counts_.failed);
  FlightRecorder::Get().Record("job.over", job.id, static_cast<uint64_t>(status.code()), 0,
                               status.message());
  if (!status.ok()) {
    FERRY_LOG(debug, "job.failed",
              LogFields("session", SessionOf(job.id), "job", SequenceOf(job.id)), "{} {}: {}",
              absl::StatusCodeToString(status.code()), std::string(ReasonName(ReasonOf(status))),
              std::string(status.message()));
  }
  if (status.ok() && job.defines_value > 0) {
    sessions_.Find(SessionOf(job.id))->timelines().Define(job.defines_timeline, job.defines_value);
  }
  for (uint32_t i = 0; !status.ok() && i < job.feeds.count; ++i) {
    hooks_.poison(MakeTransferId(SessionOf(job.id), job.feeds.first + i),
                  PoisonedBy(job.id, status));
  }
  Ended ended;
  ended.transfer = job.id;
  ended.over_timeline = job.spec.over_timeline;
  ended.over_value = job.spec.over_value;
  ended.status = std::move(status);
  ended.bytes = job.spec.bytes;
  ended.posted = job.posted;
  ended.layout = job.spec.layout;
  jobs_.erase(ended.transfer);
  hooks_.over(ended);
}

bool JobTable::Cancel(TransferId id, const absl::Status& why) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return false;
  if (found->second->state != State::kRunning) End(*found->second, why);
  return true;
}

void JobTable::CancelAll(const absl::Status& why) {
  while (!deadlines_.empty()) End(*jobs_.find(deadlines_.begin()->second)->second, why);
}

void JobTable::EndSession(SessionId session) {
  std::vector<TransferId> waiting;
  for (const auto& [deadline, id] : deadlines_) {
    if (SessionOf(id) == session) waiting.push_back(id);
  }
  for (const TransferId id : waiting) {
    End(*jobs_.find(id)->second,
        Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the client's session ended"));
  }
}

absl::Status JobTable::TooLate(const Job& job) const {
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
               absl::StrCat("run job ", SequenceOf(job.id), ": not begun within ",
                            absl::FormatDuration(job.spec.deadline - job.posted),
                            "; it waited for ", RowOf(job).waits_for));
}

absl::Time JobTable::OnTime(absl::Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Job& job = *jobs_.find(deadlines_.begin()->second)->second;
    End(job, TooLate(job));
  }
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

JobTable::Row JobTable::RowOf(const Job& job) const {
  Row row{job.id,     job.device->id, job.program->fingerprint,     "running",
          job.posted, job.spec.bytes, job.program->scratch_bytes(), ""};
  if (job.state == State::kWaiting) {
    row.state = "waiting";
    row.waits_for = absl::StrCat("its data: 'defined' counter ", job.spec.defined_timeline,
                                 " has not reached ", job.spec.defined_value);
    if (job.spec.defined)
      row.waits_for = absl::StrCat("transfer ", job.after.first, ", which comes first");
  } else if (job.state == State::kReady) {
    row.state = "ready";
    row.waits_for = absl::StrCat("its turn: ", running_, " run, ", ready_.size(), " are ready");
  }
  return row;
}

std::optional<JobTable::Row> JobTable::Find(TransferId job) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return std::nullopt;
  return RowOf(*found->second);
}

std::vector<JobTable::Row> JobTable::List(size_t limit) const {
  std::vector<const Job*> all;
  for (const auto& [id, job] : jobs_) all.push_back(job.get());
  limit = std::min(limit, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(limit), all.end(),
                    [](const Job* a, const Job* b) {
                      return std::make_pair(a->posted, a->id) < std::make_pair(b->posted, b->id);
                    });
  std::vector<Row> rows;
  for (size_t i = 0; i < limit; ++i) rows.push_back(RowOf(*all[i]));
  return rows;
}

}  // namespace ferry
