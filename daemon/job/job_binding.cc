// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/job_binding.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transfer/overlap.h"
#include "transfer/record_bytes.h"

namespace ferry {
namespace {

absl::Status BadBinding(const std::string& text, Reason reason = Reason::kFieldInvalid) {
  return Error(absl::StatusCode::kInvalidArgument, reason, text);
}

// The most transfers of all runs of a call: control makes each of them.
constexpr size_t kMostTransfers = 4 * kMaxBatchTransfers;

// A use of memory by a run of a batch.
struct Use {
  Range range;
  bool writes = false;
  size_t run = 0;
  size_t binding = 0;
  uint64_t end() const { return range.offset + range.length; }
};

// Finds bytes that a run writes and that another run of the batch, or another buffer of the same
// run, uses.
void CheckOverlaps(std::vector<Use> uses, std::vector<Violation>& violations) {
  std::stable_sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    return std::make_pair(a.range.arena, a.range.offset) <
           std::make_pair(b.range.arena, b.range.offset);
  });
  const Use* farthest = nullptr;  // the use that reaches farthest in the arena, so far
  const Use* farthest_writer = nullptr;
  for (const Use& use : uses) {
    if (use.range.length == 0) continue;
    if (farthest != nullptr && farthest->range.arena != use.range.arena) {
      farthest = farthest_writer = nullptr;
    }
    const Use* const other = use.writes ? farthest : farthest_writer;
    if (other != nullptr && other->end() > use.range.offset) {
      violations.push_back(
          {BindingField(use.run, use.binding),
           BadBinding(absl::StrCat(use.writes ? "writes" : "reads", " bytes of ",
                                   use.range.arena.ToString(), " at offset ", use.range.offset,
                                   " that ", BindingField(other->run, other->binding),
                                   other->writes ? " writes" : " reads"),
                      Reason::kRangeOverlap)});
    }
    if (farthest == nullptr || use.end() > farthest->end()) farthest = &use;
    if (use.writes && (farthest_writer == nullptr || use.end() > farthest_writer->end())) {
      farthest_writer = &use;
    }
  }
}

std::vector<Use> UsesOf(const PostBatch& batch, const std::vector<BoundJob>& jobs) {
  std::vector<Use> uses;
  for (size_t run = 0; run < batch.jobs.size(); ++run) {
    if (jobs[run].program == nullptr) continue;
    const CompiledProgram& program = *jobs[run].program;
    const absl::Span<const Range> ranges = batch.specs[run].layout.extents();
    for (size_t i = 0; i < ranges.size(); ++i) {
      const std::string& name = batch.jobs[run].bindings[i].name;
      const compute::Buffer& buffer = program.buffers[program.by_name.find(name)->second];
      const bool writes = buffer.access != compute::Access::kRead || buffer.donated;
      uses.push_back({ranges[i], writes, run, i});
    }
  }
  return uses;
}

// What is wrong with binding `binding` to buffer `index` of the program; OK if nothing is.
absl::Status CheckBinding(const CompiledProgram& program, size_t index,
                          const JobSpec::Binding& binding, const Range& range) {
  const compute::Buffer& buffer = program.buffers[index];
  if (range.length != buffer.bytes) {
    return BadBinding(absl::StrCat("@", buffer.name, " has ", buffer.bytes,
                                   " bytes, the range has ", range.length),
                      Reason::kRangeInvalid);
  }
  const uint32_t types = program.types[index];
  const uint32_t said = binding.type ? uint32_t{1} << static_cast<uint32_t>(*binding.type) : 0;
  if (said == 0 || types == 0 || types == said) return absl::OkStatus();
  std::string used;
  for (size_t type = 0; type < compute::kDTypes; ++type) {
    if ((types >> type & 1) == 0) continue;
    absl::StrAppend(&used, used.empty() ? "" : ", ",
                    compute::NameOf(static_cast<compute::DType>(type)));
  }
  return BadBinding(absl::StrCat("@", buffer.name, " is used as ", used, ", not as ",
                                 compute::NameOf(*binding.type)));
}

// What is wrong with joining `buffer` to a prepared batch, as far as the batch itself shows.
absl::Status CheckJoint(const compute::Buffer& buffer, uint32_t number,
                        const PreparedRecord* record) {
  const std::string what = absl::StrCat("prepared batch ", number);
  if (record == nullptr || record->released.has_value()) {
    return Error(absl::StatusCode::kNotFound, Reason::kIdStale,
                 absl::StrCat(what, ": this session has no such batch"));
  }
  if (record->of_jobs) return BadBinding(absl::StrCat(what, " is of jobs, not of transfers"));
  const bool sends = record->side == Side::kSend;
  if (buffer.access == (sends ? compute::Access::kRead : compute::Access::kWrite)) {
    return BadBinding(absl::StrCat(what, sends ? " sends" : " receives", ", and @", buffer.name,
                                   " is only ", sends ? "read" : "written"));
  }
  if (!sends && buffer.constant) {
    return BadBinding(absl::StrCat(what, " receives, and @", buffer.name, " is constant"));
  }
  const bool fired = record->batch->Firing() || record->batch->firings() > 0;
  const char* const why = record->left == 0 ? " has ended"
                          : record->joined  ? " is fired by another job"
                          : fired           ? " was fired before; prepare it anew for this job"
                                            : nullptr;
  if (why == nullptr) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kFieldInvalid,
               absl::StrCat(what, why));
}

// The batch may transfer a part of what is bound, but not nothing of it: then the name is that of
// another batch.
absl::Status CheckTouches(const compute::Buffer& buffer, const Range& range, uint32_t number,
                          const PreparedRecord& record) {
  if (range.length == 0 || Meets(record.extents, range)) return absl::OkStatus();
  return BadBinding(
      absl::StrCat("prepared batch ", number, record.side == Side::kSend ? " sends" : " receives",
                   " none of the ", range.length, " bytes of @", buffer.name, ", which are in ",
                   range.arena.ToString(), " at offset ", range.offset),
      Reason::kRangeInvalid);
}

// Joins runs to prepared batches. A batch can be joined to one run only, which may bind several
// buffers to it.
void JoinBatches(const Session& session, const PostBatch& batch, std::vector<BoundJob>& jobs,
                 std::vector<Violation>& violations) {
  absl::flat_hash_map<uint32_t, size_t> run_of;
  for (size_t run = 0; run < batch.jobs.size(); ++run) {
    BoundJob& bound = jobs[run];
    if (bound.program == nullptr) continue;
    const JobSpec& job = batch.jobs[run];
    for (size_t i = 0; i < job.bindings.size(); ++i) {
      if (!job.bindings[i].prepared) continue;
      const uint32_t number = *job.bindings[i].prepared;
      const size_t buffer = bound.program->by_name.find(job.bindings[i].name)->second;
      const PreparedRecord* const record = session.prepared().Find(number);
      absl::Status wrong = CheckJoint(bound.program->buffers[buffer], number, record);
      if (wrong.ok() && run_of.try_emplace(number, run).first->second != run) {
        wrong = BadBinding(absl::StrCat("prepared batch ", number, " is fired by runs[",
                                        run_of[number], "] already"));
      }
      if (wrong.ok()) {
        wrong = CheckTouches(bound.program->buffers[buffer], bound.memory[buffer], number, *record);
      }
      if (!wrong.ok()) {
        violations.push_back({BindingField(run, i), std::move(wrong)});
        continue;
      }
      const compute::LastUse& use = bound.program->last_uses[buffer];
      const std::optional<size_t> step = record->side == Side::kSend ? use.written : use.touched;
      const auto known =
          std::find_if(bound.joined.begin(), bound.joined.end(),
                       [&](const BoundJob::Joined& joined) { return joined.number == number; });
      if (known == bound.joined.end()) {
        bound.joined.push_back({number, step});
      } else {
        known->step = std::max(known->step, step);
      }
    }
  }
}

// Names by compute::DType.
constexpr std::array<DataType, compute::kDTypes> kTransferTypes = {
    DataType::kF64,      DataType::kF32,    DataType::kF16,      DataType::kBF16,
    DataType::kF8E4M3FN, DataType::kF8E5M2, DataType::kF4E2M1FN, DataType::kF8E8M0FNU,
    DataType::kS64,      DataType::kS32,    DataType::kS16,      DataType::kS8,
    DataType::kU64,      DataType::kU32,    DataType::kU16,      DataType::kU8,
    DataType::kPred,
};

// Makes the transfers of a run, and finds what is wrong with the peers that it names.
class RunTransfers {
 public:
  RunTransfers(const PostBatch& batch, size_t run, std::vector<Violation>& violations)
      : batch_(batch), run_(run), job_(batch.jobs[run]), violations_(violations) {
    for (size_t i = 0; i < job_.peers.size(); ++i) {
      if (peers_.try_emplace(job_.peers[i].name, job_.peers[i].device).second) continue;
      Violate(absl::StrCat("peers[", i, "]"),
              absl::StrCat(PrintableKey(job_.peers[i].name), " is given twice"));
    }
  }

  std::vector<TransferSpec> Make(const CompiledProgram& program, absl::Span<const Range> memory) {
    if (batch_.prepare && !program.transfers.empty()) {
      violations_.push_back(
          {absl::StrCat("runs[", run_, "].fingerprint"),
           Error(absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
                 "the program sends or receives by itself, which a prepared job does not yet; "
                 "have it write and read buffers that are bound to prepared transfers")});
      return {};
    }
    if (program.transfers.empty() && batch_.specs[run_].route != Route::kUnspecified) {
      Violate("fingerprint", "the program sends and receives nothing, by no route");
    }
    std::vector<TransferSpec> specs;
    for (const compute::PlanTransfer& transfer : program.transfers) {
      const size_t bytes = transfer.key.size() + job_.key_suffix.size();
      if (bytes <= kMaxKeyBytes) continue;
      Violate("key_suffix", absl::StrCat("with it the key ", PrintableKey(transfer.key), " has ",
                                         bytes, " bytes, at most ", kMaxKeyBytes));
      return {};
    }
    for (const compute::PlanTransfer& transfer : program.transfers) {
      const std::optional<GlobalDeviceId> device = DeviceOf(transfer);
      if (device) specs.push_back(SpecOf(transfer, *device, memory));
    }
    for (const JobSpec::Peer& peer : job_.peers) {
      if (used_.contains(peer.name)) continue;
      Violate("peers", absl::StrCat("the program names no peer ", PrintableKey(peer.name)));
    }
    return specs;
  }

 private:
  void Violate(absl::string_view field, const std::string& text,
               Reason reason = Reason::kFieldInvalid) {
    violations_.push_back({absl::StrCat("runs[", run_, "].", field), BadBinding(text, reason)});
  }

  std::optional<GlobalDeviceId> DeviceOf(const compute::PlanTransfer& transfer) {
    if (transfer.device) return GlobalDeviceId(*transfer.device);
    used_.insert(transfer.peer);
    const auto known = peers_.find(transfer.peer);
    if (known != peers_.end()) return known->second;
    if (missed_.insert(transfer.peer).second) {
      Violate("peers", absl::StrCat("the program's peer ", PrintableKey(transfer.peer),
                                    " is not given; say which device it is"));
    }
    return std::nullopt;
  }

  TransferSpec SpecOf(const compute::PlanTransfer& transfer, GlobalDeviceId device,
                      absl::Span<const Range> memory) {
    TransferSpec spec;
    spec.side = transfer.sends ? Side::kSend : Side::kReceive;
    spec.key.domain = batch_.domain;
    spec.key.source = transfer.sends ? batch_.device : device;
    spec.key.destination = transfer.sends ? device : batch_.device;
    spec.key.key = transfer.key + job_.key_suffix;
    spec.bytes = *compute::BytesOf(transfer.type);
    if (!transfer.at.slot) {
      const Range& range = memory[transfer.at.index];
      spec.layout = Layout({{range.arena, range.offset + transfer.offset, spec.bytes}});
    }
    spec.data_type = kTransferTypes[static_cast<size_t>(transfer.type.dtype)];
    spec.shape.given = true;
    spec.shape.dims.assign(transfer.type.dims.begin(), transfer.type.dims.end());
    spec.route = batch_.specs[run_].route;
    spec.priority = batch_.specs[run_].priority;
    spec.uid = batch_.specs[run_].uid;
    spec.deadline = batch_.specs[run_].deadline;
    spec.defined = false;
    spec.prompt = !transfer.sends;
    spec.record_bytes = RecordBytesOf(spec.key, spec.layout);
    return spec;
  }

  const PostBatch& batch_;
  const size_t run_;
  const JobSpec& job_;
  std::vector<Violation>& violations_;
  absl::flat_hash_map<std::string, GlobalDeviceId> peers_;
  absl::flat_hash_set<std::string> used_, missed_;
};

// Checks that the transfers that runs name were posted.
void CheckIds(const Session& session, const PostBatch& batch, std::vector<Violation>& violations) {
  for (size_t run = 0; run < batch.jobs.size(); ++run) {
    const JobSpec& job = batch.jobs[run];
    for (const auto& [name, ids] :
         {std::make_pair("after", job.after), std::make_pair("feeds", job.feeds)}) {
      if (ids.count == 0 ||
          (session.IsKnown(ids.first) && session.next_sequence() - ids.first >= ids.count)) {
        continue;
      }
      violations.push_back(
          {absl::StrCat("runs[", run, "].", name),
           Error(absl::StatusCode::kNotFound, Reason::kTransferNotFound,
                 absl::StrCat("of the transfers ", ids.first, " to ", ids.first + ids.count - 1,
                              " some were never posted by this session"))});
    }
  }
}

}  // namespace

std::vector<BoundJob> BindJobs(const Session& session, const PostBatch& batch, ProgramCache& cache,
                               const Target& target, std::vector<Violation>& violations) {
  CheckIds(session, batch, violations);
  std::vector<BoundJob> jobs(batch.jobs.size());
  size_t transfers = 0;
  for (size_t run = 0; run < batch.jobs.size(); ++run) {
    if (batch.bad_entries.contains(run)) continue;
    const JobSpec& job = batch.jobs[run];
    if (target.barred != nullptr) {
      if (absl::Status may = target.barred->Check(job.fingerprint); !may.ok()) {
        violations.push_back({absl::StrCat("runs[", run, "].fingerprint"), std::move(may)});
        continue;
      }
    }
    std::shared_ptr<const CompiledProgram> program = cache.FindFor(job.fingerprint, target);
    if (program == nullptr) {
      violations.push_back(
          {absl::StrCat("runs[", run, "].fingerprint"),
           Error(absl::StatusCode::kNotFound, Reason::kIdStale,
                 absl::StrCat("no program of this fingerprint is kept for ", target.name(),
                              "; compile it for this device first"))});
      continue;
    }
    const size_t before = violations.size();
    const absl::Span<const Range> ranges = batch.specs[run].layout.extents();
    std::vector<std::optional<Range>> bound(program->buffers.size());
    for (size_t i = 0; i < job.bindings.size(); ++i) {
      const std::string& name = job.bindings[i].name;
      const auto known = program->by_name.find(name);
      absl::Status wrong;
      if (known == program->by_name.end()) {
        wrong = BadBinding(absl::StrCat("the program has no buffer @", PrintableKey(name)));
      } else if (bound[known->second]) {
        wrong = BadBinding(absl::StrCat("@", name, " is bound twice"));
      } else {
        bound[known->second] = ranges[i];
        wrong = CheckBinding(*program, known->second, job.bindings[i], ranges[i]);
      }
      if (!wrong.ok()) violations.push_back({BindingField(run, i), std::move(wrong)});
    }
    for (size_t i = 0; i < bound.size(); ++i) {
      const compute::Buffer& buffer = program->buffers[i];
      if (bound[i]) {
        jobs[run].memory.push_back(*bound[i]);
      } else {
        violations.push_back({absl::StrCat("runs[", run, "].bindings"),
                              BadBinding(absl::StrCat("@", buffer.name, " of ", buffer.bytes,
                                                      " bytes is not bound"))});
      }
    }
    transfers += program->transfers.size();
    if (transfers > kMostTransfers) {
      violations.push_back(
          {absl::StrCat("runs[", run, "]"),
           Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
                 absl::StrCat("the programs of a call send and receive at most ", kMostTransfers,
                              " values by themselves; post fewer runs at once"))});
      return jobs;
    }
    if (violations.size() == before) {
      jobs[run].transfers = RunTransfers(batch, run, violations).Make(*program, jobs[run].memory);
    }
    if (violations.size() == before) jobs[run].program = std::move(program);
  }
  CheckOverlaps(UsesOf(batch, jobs), violations);
  JoinBatches(session, batch, jobs, violations);
  return jobs;
}

}  // namespace ferry
