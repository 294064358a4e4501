// SPDX-License-Identifier: Apache-2.0
// JobTable's jobs that send and receive by themselves. Their transfers are posted with them, so
// that they are matched early and fail together. Each begins when the plan comes to it. Where a run
// has to wait for a transfer it stops, and other jobs have their turn. So two daemons that run the
// same program do not wait for each other's threads.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "daemon/job/job_table.h"

namespace ferry {
namespace {

using State = Job::State;

std::string NameOf(const compute::PlanTransfer& transfer) {
  return absl::StrCat(
      transfer.sends ? "its send " : "its receive ", PrintableKey(transfer.key),
      transfer.sends ? " to " : " from ",
      transfer.device ? GlobalDeviceId(*transfer.device).ToString() : PrintableKey(transfer.peer));
}

}  // namespace

std::vector<ArenaId> JobTable::MakeOwnTransfers(Session& session, PostBatch& batch,
                                                const std::vector<BoundJob>& bound,
                                                std::vector<Violation>& violations) {
  std::vector<TransferSpec> all;
  std::vector<size_t> run_of;
  for (size_t run = 0; run < bound.size(); ++run) {
    all.insert(all.end(), bound[run].transfers.begin(), bound[run].transfers.end());
    run_of.resize(all.size(), run);
  }
  std::vector<ArenaId> memory(bound.size());
  if (all.empty()) return memory;
  const size_t places = batch.specs.size() + all.size();
  uint64_t bytes = 0;
  for (const TransferSpec& spec : batch.specs) bytes += spec.record_bytes;
  for (const TransferSpec& spec : all) bytes += spec.record_bytes;
  if (std::optional<absl::Status> full = session.CheckPlaces(places, bytes, homes_.control.Now())) {
    violations.push_back({"runs", *std::move(full)});
    return {};
  }
  for (TransferEngine::EntryError& error : hooks_.check(all)) {
    violations.push_back(
        {absl::StrCat("runs[", run_of[error.index], "]"), std::move(error.status)});
  }
  if (!violations.empty()) return {};
  LocalDevice& device = *devices_.Find(batch.device);
  for (size_t run = 0; run < bound.size(); ++run) {
    if (bound[run].transfers.empty()) continue;
    const TransferId job = MakeTransferId(session.id(), session.next_sequence() + run);
    absl::StatusOr<ArenaId> taken = sessions_.job_memory().Take(
        session, device, std::max<uint64_t>(bound[run].program->scratch_bytes(), 1),
        [this, job](ArenaId arena, const absl::Status& status) { OnMapped(job, arena, status); });
    if (taken.ok()) {
      memory[run] = *taken;
      continue;
    }
    violations.push_back(
        {absl::StrCat("runs[", run, "]"),
         Annotate(taken.status(), "memory of what it sends, receives and keeps meanwhile")});
    for (size_t before = 0; before < run; ++before) {
      // Memory that is being mapped is given back when it is mapped.
      const ArenaId taken_before = memory[before];
      if (taken_before != ArenaId() && (sessions_.job_memory().Awaits(taken_before) ||
                                        sessions_.FindArena(taken_before)->mapping != nullptr)) {
        sessions_.job_memory().Return(taken_before);
      }
    }
    return {};
  }
  return memory;
}

void JobTable::PostOwnTransfers(Job& job, Session& session, ArenaId memory,
                                std::vector<TransferSpec> specs) {
  const CompiledProgram& program = *job.program;
  for (size_t i = 0; i < specs.size(); ++i) {
    const compute::PlanTransfer& transfer = program.transfers[i];
    if (!transfer.at.slot) continue;
    const uint64_t offset = program.steps().slots[transfer.at.index].offset + transfer.offset;
    specs[i].layout = Layout({{memory, offset, specs[i].bytes}});
  }
  Job::OwnTransfers& own = job.own.emplace();
  own.memory = memory;
  own.mapped = sessions_.FindArena(memory)->mapping != nullptr;
  own.first = session.AdmitOfJobs(specs);
  own.over.resize(specs.size());
  own.left = specs.size();
  for (size_t i = 0; i < specs.size(); ++i) {
    own_transfers_[MakeTransferId(session.id(), SequenceOf(own.first) + i)] = job.id;
  }
  hooks_.post(job.posted, own.first, std::move(specs));
}

void JobTable::OnMapped(TransferId id, ArenaId memory, const absl::Status& status) {
  const auto found = jobs_.find(id);
  Job* const job = found == jobs_.end() ? nullptr : found->second.get();
  // The job was not posted after all.
  if (job == nullptr || !job->own || job->own->memory != memory) {
    return sessions_.job_memory().Return(memory);
  }
  job->own->mapped = true;
  if (!status.ok()) EndWith(*job, Annotate(status, "memory of the job"));
  joining_.push_back(id);
}

bool JobTable::MayGoOn(const Job& job) const {
  if (!job.own) return true;
  const Job::OwnTransfers& own = *job.own;
  if (!own.mapped || own.outcome || own.section == job.program->sections.size()) return false;
  return job.program->FirstUnready(own.section, own.over) > own.section;
}

void JobTable::GoOn(Job& job) {
  if (!job.own || (!job.own->outcome && job.own->section < job.program->sections.size())) {
    if (job.own && job.own->late) return EndWith(job, TooLate(job));
    if (job.state == State::kWaiting) ReadyIfSo(job);
    return;
  }
  Job::OwnTransfers& own = *job.own;
  if (job.state == State::kAtRunner || own.left > 0) return;
  if (!own.mapped && !sessions_.job_memory().Awaits(own.memory))
    return;  // its memory is being mapped
  sessions_.job_memory().Return(own.memory);
  End(job, own.outcome.value_or(absl::OkStatus()));
}

void JobTable::OnOwnTransferOver(const Ended& ended) {
  const auto node = own_transfers_.extract(ended.transfer);
  Job& job = *jobs_.find(node.mapped())->second;
  Job::OwnTransfers& own = *job.own;
  const size_t index = SequenceOf(ended.transfer) - SequenceOf(own.first);
  own.over[index] = true;
  --own.left;
  if (!ended.status.ok()) {
    EndWith(job, Annotate(ended.status, NameOf(job.program->transfers[index])));
  } else if (job.state == State::kAtRunner && !own.outcome) {
    own.at_runner.end.store(job.program->FirstUnready(own.section, own.over),
                            std::memory_order_release);
  }
  joining_.push_back(job.id);
}

void JobTable::EndWith(Job& job, absl::Status status) {
  PlaceOf(job).queue.TakeBack(job);
  if (job.state == State::kAtRunner) {
    if (!job.stopped_by.ok()) return;
    Leave(job);
    job.Stop(status);
    if (!job.own) return;
  }
  if (!job.own) return End(job, std::move(status));
  Job::OwnTransfers& own = *job.own;
  if (own.outcome) return;
  Leave(job);
  if (job.state != State::kAtRunner) {
    job.state = State::kEnding;
    PlaceOf(job).queue.Drop(job);
  }
  own.outcome = std::move(status);
  for (size_t i = 0; i < own.over.size(); ++i) {
    if (own.over[i]) continue;
    hooks_.poison(MakeTransferId(SessionOf(job.id), SequenceOf(own.first) + i),
                  PoisonedBy(job.id, *own.outcome, "job ", "of which it is a part"));
  }
  joining_.push_back(job.id);
}

compute::HostProgram::StepOver JobTable::DefineByStep(const Job& job) {
  if (!job.own) return nullptr;
  return [this, program = job.program.get(), first = job.own->first](size_t step) {
    const auto& transfers = program->transfers;
    const auto at = std::lower_bound(
        transfers.begin(), transfers.end(), step,
        [](const compute::PlanTransfer& one, size_t other) { return one.step < other; });
    if (at == transfers.end() || at->step != step) return;
    const auto index = static_cast<uint64_t>(at - transfers.begin());
    const TransferId id = MakeTransferId(SessionOf(first), SequenceOf(first) + index);
    homes_.control.PostOrRun([this, id] { hooks_.define(id); });
  };
}

std::string JobTable::WaitsFor(const Job& job) const {
  const Job::OwnTransfers& own = *job.own;
  const auto first_of = [&](const auto& indices) -> std::string {
    for (const size_t i : indices) {
      if (own.over[i]) continue;
      return absl::StrCat(NameOf(job.program->transfers[i]), ", transfer ",
                          SequenceOf(own.first) + i);
    }
    return "";
  };
  std::vector<size_t> all(own.over.size());
  std::iota(all.begin(), all.end(), 0);
  if (job.state == State::kEnding) return own.left > 0 ? first_of(all) : "its end";
  if (!job.spec.defined || job.after.count > 0) return "";
  if (!own.mapped && sessions_.job_memory().Awaits(own.memory)) {
    return absl::StrCat("its memory: ", sessions_.job_memory().TextOf(own.memory));
  }
  if (!own.mapped) return "its memory, whose pages are being made";
  const std::string awaited = own.section < job.program->sections.size()
                                  ? first_of(job.program->sections[own.section].awaited)
                                  : first_of(all);
  return awaited.empty() ? "its turn" : awaited;
}

JobTable::Row JobTable::RowOf(const Job& job) const {
  Row row{job.id,     job.device->id, job.program->fingerprint,     "running",
          job.posted, job.spec.bytes, job.program->scratch_bytes(), ""};
  if (job.own && job.state != State::kReady && job.state != State::kAtRunner) {
    row.state = job.state == State::kEnding ? "ending" : "waiting";
    row.waits_for = WaitsFor(job);
  }
  if (job.state == State::kWaiting && row.waits_for.empty()) {
    row.state = "waiting";
    row.waits_for = absl::StrCat("its data: 'defined' counter ", job.spec.defined_timeline,
                                 " has not reached ", job.spec.defined_value);
    if (job.spec.defined)
      row.waits_for = absl::StrCat("transfer ", job.after.first, ", which comes first");
  } else if (job.state == State::kReady ||
             (job.state == State::kAtRunner && !JobQueue::HasBegun(job))) {
    row.state = "ready";
    row.waits_for = PlaceOf(job).queue.IsHeld(job)
                        ? job.quota->TextOf(homes_.control.Now())
                        : absl::StrCat("its turn: ", PlaceOf(job).queue.running(), " running, ",
                                       PlaceOf(job).queue.waiting(), " ready");
  } else if (job.state == State::kArmed) {
    row.prepared = true;
    row.firings = PlaceOf(job).prepared.FiringsOf(job);
    row.waits_for = PlaceOf(job).prepared.WaitsFor(job);
    if (!row.waits_for.empty()) row.state = "armed";
  }
  row.run_time = job.run_time();
  return row;
}

}  // namespace ferry
