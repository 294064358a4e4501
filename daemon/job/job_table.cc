// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/job_table.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/intake.h"

namespace ferry {
namespace {

using State = Job::State;

constexpr absl::Duration kCompileRetry = absl::Milliseconds(100);

}  // namespace

JobTable::JobTable(Homes homes, LocalDevices& devices, SessionTable& sessions, JobLimits limits,
                   Hooks hooks)
    : homes_(homes),
      devices_(devices),
      sessions_(sessions),
      limits_(limits),
      hooks_(std::move(hooks)) {
  places_.push_back(std::make_unique<Place>(*this, homes_.host));
  for (const auto& [id, computing] : homes_.gpus) {
    places_.push_back(std::make_unique<Place>(*this, computing));
    gpu_places_[id] = places_.back().get();
  }
  SetLimits(limits);
}

void JobTable::SetLimits(const JobLimits& limits) {
  home_.Check();
  limits_ = limits;
  for (const auto& [id, place] : gpu_places_) place->quotas.SetShare(limits.gpu_time);
}

JobTable::Place::Place(JobTable& table, const Computing& computing)
    : computing(computing),
      queue({table.homes_.control, computing.home, computing.runner}, table.jobs_,
            {[&table](const Job& job) { return table.MemoryOf(job); },
             [&table](const Job& job) {
               return absl::MakeSpan(table.sessions_.FindArena(job.own->memory)->mapping->data(),
                                     job.program->scratch_bytes());
             },
             [&table](const Job& job) { return table.DefineByStep(job); },
             [&table](Job& job, absl::Status status) { table.OnRan(job, std::move(status)); }}),
      prepared(table.homes_.control, computing.home, computing.runner, table.jobs_, table.sessions_,
               {[&table](const Job& job) { return table.MemoryOf(job); }, table.hooks_.poison,
                [&table](Job& job, absl::Status status) { table.End(job, std::move(status)); }}) {}

absl::Status JobTable::CheckDevice(GlobalDeviceId id) const {
  const LocalDevice* device = devices_.Find(id);
  if (device == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
                 absl::StrCat(id.ToString(), " is not a device of this daemon, which has ",
                              devices_.Shown()));
  }
  if (device->gpu == nullptr || gpu_places_.contains(id)) return absl::OkStatus();
  const GpuInfo& gpu = device->gpu->info();
  return FieldError("device_id",
                    absl::StrCat(id.ToString(), ": ",
                                 compute::GpuArchOf(gpu.major, gpu.minor).status().message()),
                    absl::StatusCode::kUnimplemented);
}

Target JobTable::TargetOf(GlobalDeviceId id) const {
  const CudaDevice* const gpu = devices_.Find(id)->gpu;
  if (gpu == nullptr) return {};
  return {*compute::GpuArchOf(gpu->info().major, gpu->info().minor), homes_.kernels, homes_.barred,
          homes_.gpus.at(id).multiplier, gpu->info().uuid_text()};
}

void JobTable::CheckAlignment(const std::vector<BoundJob>& bound,
                              std::vector<Violation>& violations) const {
  constexpr uint32_t kAlignment = compute::GpuProgram::kBufferAlignment;
  for (size_t run = 0; run < bound.size(); ++run) {
    if (bound[run].program == nullptr || !bound[run].program->gpu) continue;
    for (size_t i = 0; i < bound[run].memory.size(); ++i) {
      const Range& range = bound[run].memory[i];
      if (range.length == 0) continue;
      const std::byte* const at = sessions_.FindArena(range.arena)->mapping->data() + range.offset;
      if (reinterpret_cast<uintptr_t>(at) % kAlignment == 0) continue;
      violations.push_back(
          {absl::StrCat("runs[", run, "]"),
           Error(absl::StatusCode::kInvalidArgument, Reason::kRangeInvalid,
                 absl::StrCat("@", bound[run].program->buffers[i].name, " begins at offset ",
                              range.offset, " of ", range.arena.ToString(),
                              ": on a GPU a buffer's address is a multiple of ", kAlignment))});
    }
  }
}

void JobTable::Pump() {
  for (const std::unique_ptr<Place>& place : places_) place->queue.Pump();
}

JobTable::Use JobTable::use() const {
  Use use;
  for (const std::unique_ptr<Place>& place : places_) {
    use.run_time += place->computing.runner.run_time();
  }
  for (const auto& [id, place] : gpu_places_) {
    use.gpus.push_back({id, &place->quotas, place->queue.held()});
  }
  return use;
}

void JobTable::LetGoOfGpus() {
  for (const auto& [id, place] : gpu_places_) {
    if (!place->used || place->jobs > 0 || devices_.Find(id)->arenas > 0) continue;
    place->used = false;
    place->computing.home.Post([&runner = place->computing.runner] { runner.LetGo(); });
  }
}

void JobTable::Compile(GlobalDeviceId device, ProgramSource source, bool keep,
                       std::function<void(CompileResult)> done) {
  home_.Check();
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
  Target target = TargetOf(device);
  if (!keep) target.barred = nullptr;  // a plan of it may be looked at
  homes_.compiler.Post([this, source = std::move(source), limits = limits_, target, keep,
                        done = std::move(done)]() mutable {
    CompileResult result = CompileProgram(source, limits, target);
    homes_.control.Post([this, keep, result = std::move(result), done = std::move(done)]() mutable {
      --compiling_;
      ++(result.status.ok() ? counts_.compiled : counts_.refused_programs);
      if (keep && result.status.ok()) {
        const auto kept = programs_.Add(result.program);
        // The cached program may have its steps in another order: its plan is told, not that of
        // this text.
        if (kept->plan != result.program->plan) result.plan = kept->plan;
        result.program = kept;
      }
      done(std::move(result));
    });
  });
}

PostReply JobTable::Post(Session& session, PostBatch batch) {
  home_.Check();
  batch.posted = homes_.control.Now();
  std::vector<BoundJob> bound;
  std::vector<ArenaId> own_memory;
  const auto check = [&](std::vector<Violation>& violations) {
    const absl::Status good = CheckDevice(batch.device);
    bound = BindJobs(session, batch, programs_, good.ok() ? TargetOf(batch.device) : Target(),
                     violations);
    if (violations.empty()) CheckAlignment(bound, violations);
    if (violations.empty()) own_memory = MakeOwnTransfers(session, batch, bound, violations);
  };
  const Intake intake =
      TakeIn(session, batch, batch.posted,
             {draining_ ? TakesNone("jobs") : absl::OkStatus(), CheckDevice(batch.device), check});
  const PostReply& reply = intake.reply;
  if (!intake.taken) return reply;
  if (batch.prepare) {
    Prepare(session, reply, batch, std::move(bound));
    return reply;
  }
  for (size_t i = 0; i < batch.jobs.size(); ++i) {
    std::vector<TransferSpec> transfers = std::move(bound[i].transfers);
    Job& job = Add(session.id(), reply, i, batch, std::move(bound[i]));
    if (!transfers.empty()) PostOwnTransfers(job, session, own_memory[i], std::move(transfers));
    deadlines_.emplace(job.spec.deadline, job.id);
    if (!job.spec.defined) Watch(job);
    if (job.after.count > 0) {
      joining_.push_back(job.id);
    } else {
      ReadyIfSo(job);
    }
  }
  Pump();
  return reply;
}

Job& JobTable::Add(SessionId session, const PostReply& reply, size_t index, PostBatch& batch,
                   BoundJob bound) {
  TransferSpec& spec = batch.specs[index];
  const JobSpec& given = batch.jobs[index];
  auto made = std::make_unique<Job>(session.value(), spec.priority, bound.program->work);
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
  job.posted = batch.posted;
  Place& place = PlaceOf(job);
  job.quota = &place.quotas.Of(job.spec.uid);
  ++place.jobs;
  place.used = true;
  jobs_[job.id] = std::move(made);
  return job;
}

std::vector<absl::Span<std::byte>> JobTable::MemoryOf(const Job& job) {
  std::vector<absl::Span<std::byte>> memory;
  for (const Range& range : job.memory) {
    const Arena* arena = sessions_.FindArena(range.arena);
    FERRY_CHECK(arena != nullptr);  // the job pins its arenas
    memory.emplace_back(arena->mapping->data() + range.offset, range.length);
  }
  return memory;
}

void JobTable::Prepare(Session& session, const PostReply& reply, PostBatch& batch,
                       std::vector<BoundJob> bound) {
  std::vector<Job*> jobs;
  std::vector<std::vector<BoundJob::Joined>> joined;
  for (size_t i = 0; i < batch.jobs.size(); ++i) {
    joined.push_back(std::move(bound[i].joined));
    jobs.push_back(&Add(session.id(), reply, i, batch, std::move(bound[i])));
  }
  PlaceOf(*devices_.Find(batch.device)).prepared.Add(session, reply.prepared_batch, jobs, joined);
}

bool JobTable::Join() {
  home_.Check();
  const bool any = !joining_.empty();
  while (!joining_.empty()) {
    const TransferId id = joining_.back();
    joining_.pop_back();
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) continue;
    Job& job = *found->second;
    if (job.state == State::kWaiting && job.after.count > 0) {
      Advance(job);
    } else {
      GoOn(job);
    }
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
    if (std::optional<absl::Status> failure = session.endings().FindFailure(job.after.first)) {
      return EndWith(job, PoisonedBy(id, *failure));
    }
    if (job.after.first <= session.endings().forgotten_failures()) {
      return EndWith(job, Error(absl::StatusCode::kAborted, Reason::kPoisoned,
                                absl::StrCat("transfer ", job.after.first,
                                             " is over, but how it ended is not known any more")));
    }
  }
  ReadyIfSo(job);
}

void JobTable::OnOver(const Ended& ended) {
  home_.Check();
  for (const std::unique_ptr<Place>& place : places_) place->prepared.OnOver(ended);
  if (own_transfers_.contains(ended.transfer)) OnOwnTransferOver(ended);
  for (uint32_t place = 0; place < ended.count && !awaited_.empty(); ++place) {
    const auto found = awaited_.find(TransferId(ended.transfer.value() + place));
    if (found == awaited_.end()) continue;
    joining_.insert(joining_.end(), found->second.begin(), found->second.end());
    awaited_.erase(found);
  }
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
  if (found == jobs_.end()) return;  // the job has ended while this was on its way
  found->second->spec.defined = true;
  ReadyIfSo(*found->second);
  Pump();
}

void JobTable::ReadyIfSo(Job& job) {
  if (!job.spec.defined || job.after.count > 0 || !MayGoOn(job)) return;
  PlaceOf(job).queue.Add(job);
}

void JobTable::OnFiringFailed(TransferId job, const absl::Status& why) {
  home_.Check();
  const auto found = jobs_.find(job);
  if (found != jobs_.end()) Cancel(job, WithHolders(why, *found->second, sessions_.all()));
}

void JobTable::OnRan(Job& job, absl::Status status) {
  status = WithHolders(status, job, sessions_.all());
  if (!job.own) return End(job, std::move(status));
  job.state = job.own->outcome ? State::kEnding : State::kWaiting;
  if (job.own->outcome) PlaceOf(job).queue.Drop(job);
  if (!status.ok() && !job.own->outcome) return EndWith(job, std::move(status));
  GoOn(job);
}

void JobTable::Leave(Job& job) {
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
  job.awaited.reset();
  PlaceOf(job).queue.Remove(job);
  deadlines_.erase({job.spec.deadline, job.id});
}

void JobTable::End(Job& job, absl::Status status) {
  Leave(job);
  PlaceOf(job).queue.Drop(job);
  --PlaceOf(job).jobs;
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
  ended.record_bytes = job.spec.record_bytes;
  ended.prepared = job.state == State::kArmed;
  sessions_.Find(SessionOf(job.id))->OnRan(job.run_time());
  jobs_.erase(ended.transfer);
  hooks_.over(ended);
}

bool JobTable::Cancel(TransferId id, const absl::Status& why) {
  home_.Check();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return false;
  Job& job = *found->second;
  if (job.state == State::kArmed) {
    PlaceOf(job).prepared.End(job, why);
  } else {
    EndWith(job, why);
  }
  return true;
}

void JobTable::EndAll(std::optional<SessionId> session, const absl::Status& why) {
  std::vector<TransferId> all;
  for (const auto& [id, job] : jobs_) {
    if (job->state != State::kArmed && (!session || SessionOf(id) == *session)) all.push_back(id);
  }
  std::sort(all.begin(), all.end());
  for (const TransferId id : all) {
    if (const auto found = jobs_.find(id); found != jobs_.end()) EndWith(*found->second, why);
  }
  for (const std::unique_ptr<Place>& place : places_) place->prepared.EndAll(session, why);
}

void JobTable::CancelAll(const absl::Status& why) {
  home_.Check();
  EndAll(std::nullopt, why);
}

void JobTable::EndSession(SessionId session) {
  home_.Check();
  EndAll(session,
         Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the client's session ended"));
}

absl::Status JobTable::TooLate(const Job& job) const {
  const bool runs = job.state == State::kAtRunner;  // a job that had not begun was taken back
  const bool begun = runs || job.aside || (job.own && job.own->section > 0);
  std::string text =
      absl::StrCat("run job ", SequenceOf(job.id), ": not ", begun ? "over" : "begun", " within ",
                   DurationText(job.spec.deadline - job.posted));
  if (!runs) absl::StrAppend(&text, "; it waited for ", RowOf(job).waits_for);
  if (!runs && job.own && job.spec.defined && job.after.count == 0 &&
      sessions_.job_memory().Awaits(job.own->memory)) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory, text);
  }
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady, text);
}

absl::Time JobTable::OnTime(absl::Time now) {
  home_.Check();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Job& job = *jobs_.find(deadlines_.begin()->second)->second;
    // The job's transfers, which have the same deadline, say best what was missing. If they go well
    // after all, GoOn ends the job.
    if (job.state == State::kWaiting && job.own && job.own->section > 0 && job.own->left > 0) {
      job.own->late = true;
      deadlines_.erase(deadlines_.begin());
      continue;
    }
    PlaceOf(job).queue.TakeBack(job);
    EndWith(job, TooLate(job));
  }
  absl::Time look = absl::InfiniteFuture();
  for (const std::unique_ptr<Place>& place : places_) {
    look = std::min({look, place->prepared.OnTime(now), place->queue.OnTime(now)});
  }
  Pump();
  LetGoOfGpus();
  return deadlines_.empty() ? look : std::min(look, deadlines_.begin()->first);
}

std::optional<JobTable::Row> JobTable::Find(TransferId job) const {
  home_.Check();
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return std::nullopt;
  return RowOf(*found->second);
}

std::vector<JobTable::Row> JobTable::List(size_t limit) const {
  home_.Check();
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
