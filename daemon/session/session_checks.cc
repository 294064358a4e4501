// SPDX-License-Identifier: Apache-2.0
// What a session finds wrong with a batch.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/session/session.h"

namespace ferry {
namespace {

// Of one batch; an answer has room for fewer.
constexpr size_t kMostListed = 1024;

absl::Status OutsideArena(const Layout& layout, const Range& extent, const Arena& arena) {
  std::string what;
  Range bytes = extent;
  if (const Layout::Blocks* blocks = layout.blocks(); blocks != nullptr && blocks->count > 0) {
    what = absl::StrCat(blocks->NameOf(blocks->Farthest()), ": ");
    bytes = layout.block(blocks->Farthest());
  }
  return Error(absl::StatusCode::kInvalidArgument, Reason::kRangeInvalid,
               absl::StrCat(what, "bytes [", bytes.offset, ", +", bytes.length, ") are not inside ",
                            arena.id.ToString(), ", which has ", arena.bytes, " bytes"));
}

}  // namespace

std::optional<absl::Status> Session::CheckPlaces(size_t count, uint64_t bytes, absl::Time now) {
  home_.Check();
  const SessionUse& quota = limits_.quota;
  const uint64_t wanted = in_flight_ + count;
  if (wanted > quota.transfers_in_flight) {
    const bool ever = count <= quota.transfers_in_flight;
    absl::Status full =
        Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
              absl::StrCat("post ", count, " transfers: ", id_.ToString(), " has ", in_flight_,
                           " of ", quota.transfers_in_flight, " transfers in flight; ",
                           ever ? "wait for some to end" : "post fewer at once"));
    if (!ever) return full;
    return WithRetryAfter(std::move(full), places_.For(now, wanted - quota.transfers_in_flight));
  }
  const auto full = [&](const RecordBytes& account, const std::string& whose, const char* setting) {
    return account.Full(now, bytes, absl::StrCat("post ", count, " transfers"), whose, setting);
  };
  if (!records_.Fits(bytes)) return full(records_, id_.ToString(), "limits.session_kept_bytes");
  if (!of_uid_.Fits(bytes)) {
    return full(of_uid_, absl::StrCat("uid ", credentials_.uid), "limits.uid_kept_bytes");
  }
  if (next_sequence_ + count > (uint64_t{1} << kTransferSequenceBits)) {
    return Error(
        absl::StatusCode::kFailedPrecondition, Reason::kFieldInvalid,
        absl::StrCat(id_.ToString(), " has given out all its transfer ids; open another one"));
  }
  return std::nullopt;
}

uint64_t Session::CompleteKeys(PostBatch& batch) {
  batch.domain = TagOf(batch.domain);
  uint64_t bytes = batch.extents.size() * sizeof(Range);
  for (TransferSpec& spec : batch.specs) {
    spec.key.domain = batch.domain;
    spec.uid = credentials_.uid;
    spec.record_bytes = RecordBytesOf(spec.key, spec.layout);
    bytes += spec.record_bytes;
  }
  return bytes;
}

std::vector<Violation> Session::CheckRoom(const PostBatch& batch, uint64_t bytes, absl::Time now) {
  std::vector<Violation> violations;
  const char* const list = batch.runs_programs ? "runs" : "buffers";
  if (std::optional<absl::Status> full = CheckPlaces(batch.specs.size(), bytes, now)) {
    violations.push_back({list, *std::move(full)});
  }
  if (batch.prepare && prepared_.full()) {
    violations.push_back(
        {"prepare",
         Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
               absl::StrCat("prepare a batch: ", id_.ToString(), " has ", FERRY_PREPARED_BATCHES,
                            " prepared batches, and may have no more; release some"))});
  }
  if (over_devices_.empty()) over_devices_.resize(FERRY_TIMELINE_COUNTERS);
  const std::optional<GlobalDeviceId> bound = batch.over_timeline < over_devices_.size()
                                                  ? over_devices_[batch.over_timeline]
                                                  : std::nullopt;
  if (!batch.prepare && bound.has_value() && *bound != batch.device) {
    violations.push_back({"options.over_timeline",
                          Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                                absl::StrCat("'over' counter ", batch.over_timeline,
                                             " is bound to ", bound->ToString(),
                                             "; use another one for ", batch.device.ToString()))});
  }
  return violations;
}

void Session::CheckRanges(PostBatch& batch, size_t entry, const Arena*& last,
                          std::vector<Violation>& violations) {
  const Layout& layout = batch.specs[entry].layout;
  const absl::Span<const Range> extents = layout.extents();
  for (size_t e = 0; e < extents.size(); ++e) {
    const Range& extent = extents[e];
    absl::Status status;
    if (last == nullptr || last->id != extent.arena) {
      absl::StatusOr<Arena*> arena = arenas_.Find(extent.arena);
      if (arena.ok()) {
        last = *arena;
      } else {
        status = arena.status();
      }
    }
    if (status.ok() && last->device != batch.device) {
      status = Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                     absl::StrCat(last->id.ToString(), " is on ", last->device.ToString(),
                                  ", the batch is for ", batch.device.ToString()));
    } else if (status.ok() &&
               (extent.length > last->bytes || extent.offset > last->bytes - extent.length)) {
      status = OutsideArena(layout, extent, *last);
    }
    if (status.ok()) continue;
    violations.push_back({batch.runs_programs ? BindingField(entry, e) : FieldOf(entry, layout, e),
                          std::move(status)});
    batch.bad_entries.insert(entry);
    if (violations.size() >= kMostListed) return;
  }
}

std::vector<Violation> Session::CheckAndComplete(PostBatch& batch, absl::Time now) {
  home_.Check();
  const uint64_t bytes = CompleteKeys(batch);
  std::vector<Violation> violations = CheckRoom(batch, bytes, now);
  const Arena* last = nullptr;
  for (size_t i = 0; i < batch.specs.size(); ++i) {
    TransferSpec& spec = batch.specs[i];
    spec.over_timeline = batch.over_timeline;
    const absl::Duration deadline =
        batch.deadlines[i] > absl::ZeroDuration() ? batch.deadlines[i] : limits_.default_deadline;
    spec.deadline = now + deadline;
    if (!spec.defined) {
      spec.defined = timelines_->DefinedValue(spec.defined_timeline) >= spec.defined_value;
    }
    if (batch.bad_entries.contains(i)) continue;
    CheckRanges(batch, i, last, violations);
    if (violations.size() >= kMostListed) break;  // it is refused, and told enough
  }
  return violations;
}

}  // namespace ferry
