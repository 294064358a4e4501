// SPDX-License-Identifier: Apache-2.0
// daemon/rpc/convert.h for runs of programs.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/program/limits.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/convert_batch.h"
#include "daemon/rpc/program_codec.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry {
namespace {

// One run of a batch whose entries are there to be filled in.
class RunEntry {
 public:
  RunEntry(const v1::ProgramRun& run, size_t index, PostBatch& batch)
      : run_(run),
        index_(index),
        batch_(batch),
        spec_(batch.specs[index]),
        job_(batch.jobs[index]) {}

  void Convert(const BatchOptions& options);

 private:
  void Bad(std::string field, absl::Status status) {
    batch_.bad_entries.insert(index_);
    batch_.violations.push_back({std::move(field), std::move(status)});
  }
  std::string Field(const char* name) const { return absl::StrCat("runs[", index_, "].", name); }

  void ConvertBindings();
  // Whom the program sends to and receives from, by which keys.
  void ConvertPeers();
  // The transfers that it comes after and feeds, and the counter that it defines.
  void ConvertOrder();
  void CheckPrepared();

  const v1::ProgramRun& run_;
  const size_t index_;
  PostBatch& batch_;
  TransferSpec& spec_;
  JobSpec& job_;
};

void RunEntry::Convert(const BatchOptions& options) {
  constexpr size_t kFingerprintBytes = 32;
  spec_.priority = options.priority;
  spec_.route = options.route;
  spec_.prepared = batch_.prepare;
  job_.fingerprint = run_.fingerprint();
  if (job_.fingerprint.size() != kFingerprintBytes) {
    Bad(Field("fingerprint"),
        Invalid(absl::StrCat("a fingerprint has 32 bytes, not ", job_.fingerprint.size())));
  }
  if (static_cast<size_t>(run_.bindings_size()) > compute::kMaxBuffers) {
    // Of such a run nothing else is looked at.
    return Bad(Field("bindings"), Invalid(absl::StrCat("at most ", compute::kMaxBuffers, ", not ",
                                                       run_.bindings_size())));
  }
  ConvertBindings();
  if (run_.has_defined_at()) {
    absl::Status defined = ConvertDefinedAt(run_.defined_at(), spec_);
    if (!defined.ok()) Bad(Field("defined_at"), std::move(defined));
  }
  ConvertPeers();
  ConvertOrder();
  if (batch_.prepare) CheckPrepared();
  if (run_.has_deadline()) {
    absl::Status status = SetDeadline(run_.deadline(), batch_.deadlines[index_]);
    if (!status.ok()) Bad(Field("deadline"), std::move(status));
  }
}

void RunEntry::ConvertBindings() {
  std::vector<Range> ranges;
  for (const v1::ProgramBinding& binding : run_.bindings()) {
    const v1::BufferRange& range = binding.range();
    ranges.push_back({ArenaId(range.arena_id()), range.offset(), range.length()});
    job_.bindings.push_back({binding.name(), DTypeOf(binding.data_type())});
    if (binding.has_prepared_batch()) {
      job_.bindings.back().prepared = binding.prepared_batch();
      if (!batch_.prepare) {
        Bad(BindingField(index_, ranges.size() - 1),
            Invalid("prepared_batch is for prepared jobs; this one says what it comes "
                    "after and feeds"));
      }
    }
    if (binding.data_type() != v1::DATA_TYPE_UNSPECIFIED && !job_.bindings.back().type) {
      Bad(BindingField(index_, ranges.size() - 1),
          Invalid(absl::StrCat("no value has data_type ", binding.data_type())));
    }
  }
  spec_.layout = Layout(std::move(ranges));
  spec_.bytes = spec_.layout.bytes();
}

void RunEntry::ConvertPeers() {
  if (static_cast<size_t>(run_.peers_size()) > compute::kMaxBuffers) {
    Bad(Field("peers"),
        Invalid(absl::StrCat("at most ", compute::kMaxBuffers, ", not ", run_.peers_size())));
  } else {
    for (const v1::ProgramPeer& peer : run_.peers()) {
      job_.peers.push_back({peer.name(), GlobalDeviceId(peer.device_id())});
    }
  }
  job_.key_suffix = run_.key_suffix();
  if (job_.key_suffix.size() > kMaxKeyBytes) {
    Bad(Field("key_suffix"),
        Invalid(absl::StrCat("at most ", kMaxKeyBytes, " bytes, not ", job_.key_suffix.size())));
  }
}

void RunEntry::ConvertOrder() {
  job_.after = {run_.after().first(), run_.after().count()};
  job_.feeds = {run_.feeds().first(), run_.feeds().count()};
  for (const auto& [name, ids] :
       {std::make_pair("after", job_.after), std::make_pair("feeds", job_.feeds)}) {
    if (ids.count <= kMaxBatchTransfers) continue;
    Bad(Field(name), Invalid(absl::StrCat("at most ", kMaxBatchTransfers, ", not ", ids.count)));
  }
  job_.defines_timeline = run_.defines().timeline();
  job_.defines_value = run_.defines().value();
  if (job_.defines_timeline >= FERRY_TIMELINE_COUNTERS) {
    Bad(Field("defines"), Invalid(absl::StrCat("counter ", job_.defines_timeline, " is not below ",
                                               FERRY_TIMELINE_COUNTERS)));
  }
}

void RunEntry::CheckPrepared() {
  for (const auto& [name, given] :
       {std::make_pair("defined_at", run_.has_defined_at()),
        std::make_pair("after", run_.has_after()), std::make_pair("defines", run_.has_defines()),
        std::make_pair("feeds", run_.has_feeds())}) {
    if (!given) continue;
    Bad(Field(name), Invalid("a prepared job is fired by its batch's own words, and joined "
                             "to prepared transfers by what is bound"));
  }
}

}  // namespace

PostBatch Convert(const v1::RunRequest& request) {
  constexpr int kWhat = 2;  // neither side of a transfer
  PostBatch batch;
  batch.runs_programs = true;
  batch.device = GlobalDeviceId(request.device_id());
  batch.size = static_cast<size_t>(request.runs_size());
  absl::Status size = CheckSize("Run", "runs", batch.size, request.ByteSizeLong());
  if (!size.ok()) {
    batch.violations.push_back({"runs", std::move(size)});
    return batch;
  }
  if (batch.size == 0) {
    batch.violations.push_back({"runs", Invalid("there must be at least one")});
  }
  ConvertIdAndDomain(request, kWhat, batch);
  const BatchOptions options = ConvertOptions(request.options(), batch);
  batch.prepare = request.prepare();
  batch.specs.resize(batch.size);
  batch.jobs.resize(batch.size);
  batch.deadlines.resize(batch.size, options.deadline);
  for (size_t i = 0; i < batch.size; ++i) {
    RunEntry(request.runs(static_cast<int>(i)), i, batch).Convert(options);
  }
  return batch;
}

}  // namespace ferry
