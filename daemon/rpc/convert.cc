// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/convert.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/status.h"
#include "compute/program/limits.h"
#include "daemon/rpc/plain_request.h"
#include "daemon/rpc/program_codec.h"
#include "proto/ferry/v1/timeline_layout.h"
#include "transfer/overlap.h"

namespace ferry {
namespace {

constexpr size_t kMaxRequestIdBytes = 64;
constexpr size_t kMaxBatchBytes = 1 << 20;
constexpr int kMaxDims = 8;

absl::Status Invalid(const std::string& text, Reason reason = Reason::kFieldInvalid) {
  return Error(absl::StatusCode::kInvalidArgument, reason, text);
}

// It must be positive, and short enough to be added to a clock.
absl::Status SetDeadline(const google::protobuf::Duration& proto, absl::Duration& deadline) {
  const absl::Duration given = absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
  if (given <= absl::ZeroDuration() || given > absl::Hours(24 * 365)) {
    return Invalid(absl::StrCat("a deadline must be more than 0 and at most a year, not ",
                                DurationText(given)));
  }
  deadline = given;
  return absl::OkStatus();
}

// Type and shape of one buffer, against its `bytes`.
template <typename Buffer>
absl::Status ConvertShape(const Buffer& buffer, uint64_t bytes, TransferSpec& spec) {
  if (buffer.data_type() < 0 || buffer.data_type() >= kDataTypes) {
    return Invalid(absl::StrCat("data_type ", buffer.data_type(), " is unknown"));
  }
  spec.data_type = static_cast<DataType>(buffer.data_type());
  if (!buffer.has_shape()) {
    if (buffer.dims_size() > 0) return Invalid("dims are given but has_shape is false");
    const int bits = DataTypeBits(spec.data_type);
    if (bits >= 8 && bytes % (static_cast<uint64_t>(bits) / 8) != 0) {
      return Invalid(absl::StrCat(bytes, " bytes are not a whole number of elements of ",
                                  DataTypeName(spec.data_type)));
    }
    return absl::OkStatus();
  }
  if (buffer.dims_size() > kMaxDims) {
    return Invalid(
        absl::StrCat("a shape has at most ", kMaxDims, " dimensions, not ", buffer.dims_size()));
  }
  spec.shape.given = true;
  for (const int64_t dim : buffer.dims()) {
    if (dim < 0) return Invalid(absl::StrCat("dimension ", dim, " is negative"));
    spec.shape.dims.push_back(dim);
  }
  const bool empty =
      std::find(buffer.dims().begin(), buffer.dims().end(), 0) != buffer.dims().end();
  unsigned __int128 elements = empty ? 0 : 1;
  for (const int64_t dim : buffer.dims()) {
    elements *= static_cast<uint64_t>(dim);
    if (elements > std::numeric_limits<uint64_t>::max()) {
      return Invalid(absl::StrCat("the shape ", spec.shape.ToString(), " overflows"));
    }
  }
  if (spec.data_type == DataType::kUnspecified) return absl::OkStatus();
  const unsigned __int128 expected =
      (elements * static_cast<unsigned>(DataTypeBits(spec.data_type)) + 7) / 8;
  if (expected > std::numeric_limits<uint64_t>::max()) {
    return Invalid(absl::StrCat("the bytes of ", DataTypeName(spec.data_type),
                                spec.shape.ToString(), " overflow"));
  }
  if (expected != bytes) {
    return Invalid(absl::StrCat(DataTypeName(spec.data_type), spec.shape.ToString(), " has ",
                                static_cast<uint64_t>(expected), " bytes, the ranges have ",
                                bytes));
  }
  return absl::OkStatus();
}

// Bounds on what a single layout may take of the daemon.
absl::Status AtMost(uint64_t most, const char* what, uint64_t given) {
  if (given <= most) return absl::OkStatus();
  return Invalid(absl::StrCat("at most ", most, " ", what, ", not ", given), Reason::kRangeInvalid);
}

// `field`, within the buffer, is what an error is about.
template <typename Buffer>
absl::StatusOr<Layout> ConvertLayout(const Buffer& buffer, std::string& field) {
  if ((buffer.ranges_size() > 0 ? 1 : 0) + (buffer.has_strided() ? 1 : 0) +
          (buffer.has_blocks() ? 1 : 0) >
      1) {
    return Invalid("at most one of ranges, strided and blocks can be given");
  }
  if (buffer.has_strided()) {
    const v1::StridedRange& strided = buffer.strided();
    field = ".strided";
    RETURN_IF_ERROR(AtMost(kMaxBlocks, "blocks", strided.count()));
    return Layout::Strided(ArenaId(strided.arena_id()), strided.offset(), strided.block_bytes(),
                           strided.stride_bytes(), strided.count());
  }
  if (buffer.has_blocks()) {
    const v1::BlockTable& table = buffer.blocks();
    field = ".blocks";
    RETURN_IF_ERROR(AtMost(kMaxBlocks, "blocks", static_cast<uint64_t>(table.indices_size())));
    return Layout::BlockTable(ArenaId(table.arena_id()), table.offset(), table.block_bytes(),
                              {table.indices().begin(), table.indices().end()});
  }
  if (buffer.ranges_size() == 1 && buffer.ranges()[0].length() > 0) {
    const auto& range = buffer.ranges()[0];
    return Layout(Range{ArenaId(range.arena_id()), range.offset(), range.length()});
  }
  field = ".ranges";
  RETURN_IF_ERROR(AtMost(kMaxRanges, "ranges", static_cast<uint64_t>(buffer.ranges_size())));
  std::vector<Range> ranges;
  ranges.reserve(buffer.ranges_size());
  uint64_t bytes = 0;
  for (const auto& range : buffer.ranges()) {
    if (range.length() > std::numeric_limits<uint64_t>::max() - bytes) {
      absl::StrAppend(&field, "[", ranges.size(), "]");
      return Invalid(absl::StrCat("the lengths of the ranges up to this one, which has ",
                                  range.length(), " bytes, overflow"),
                     Reason::kRangeInvalid);
    }
    bytes += range.length();
    ranges.push_back({ArenaId(range.arena_id()), range.offset(), range.length()});
  }
  return Layout::Merged(std::move(ranges));
}

absl::Status ConvertDefinedAt(const v1::DefinedAt& defined_at, TransferSpec& spec) {
  if (defined_at.timeline() >= FERRY_TIMELINE_COUNTERS) {
    return Invalid(absl::StrCat("defined_at.timeline ", defined_at.timeline(), " is not below ",
                                FERRY_TIMELINE_COUNTERS));
  }
  spec.defined = false;
  spec.defined_timeline = defined_at.timeline();
  spec.defined_value = defined_at.value();
  return absl::OkStatus();
}

// `field` as of ConvertLayout.
template <typename Buffer>
absl::Status ConvertBuffer(const Buffer& buffer, TransferSpec& spec, std::string& field) {
  ASSIGN_OR_RETURN(spec.layout, ConvertLayout(buffer, field));
  field.clear();
  spec.bytes = spec.layout.bytes();
  if (buffer.has_defined_at()) RETURN_IF_ERROR(ConvertDefinedAt(buffer.defined_at(), spec));
  return ConvertShape(buffer, spec.bytes, spec);
}

// So that no batch is long work for control or a lane, however few bytes it is said in. The entries
// from which on it is too much are bad.
void CheckPieces(PostBatch& batch) {
  size_t ranges = 0, runs = 0;
  for (size_t i = 0; i < batch.specs.size(); ++i) {
    const Layout& layout = batch.specs[i].layout;
    if (layout.blocks() == nullptr) ranges += layout.extents().size();
    runs += layout.runs();
    if (ranges <= kMaxBatchRanges && runs <= kMaxBatchRuns) continue;
    if (!batch.bad_entries.insert(i).second) continue;
    batch.violations.push_back(
        {absl::StrCat("buffers[", i, "]"),
         Invalid(
             absl::StrCat("the buffers of the batch up to this one have ", ranges, " ranges and ",
                          runs, " pieces that are apart in memory, at most ", kMaxBatchRanges,
                          " and ", kMaxBatchRuns, " can be in one batch; post several batches"),
             Reason::kBatchTooLarge)});
  }
}

// Receives of a batch may not write the same bytes.
void CheckOverlaps(PostBatch& batch) {
  std::vector<const Layout*> layouts;
  layouts.reserve(batch.specs.size());
  for (const TransferSpec& spec : batch.specs) layouts.push_back(&spec.layout);
  const absl::StatusOr<std::vector<Overlap>> overlaps = FindOverlaps(layouts);
  if (!overlaps.ok()) return batch.violations.push_back({"buffers", overlaps.status()});
  const auto block_name = [](const Layout& layout, size_t block, const char* behind) {
    return layout.blocks() == nullptr ? "" : absl::StrCat(layout.blocks()->NameOf(block), behind);
  };
  for (const Overlap& overlap : *overlaps) {
    const Layout &first = *layouts[overlap.first], &second = *layouts[overlap.second];
    batch.bad_entries.insert(overlap.second);
    batch.violations.push_back(
        {FieldOf(overlap.second, second, overlap.second_block),
         Invalid(absl::StrCat(block_name(second, overlap.second_block, " "), "writes bytes of ",
                              overlap.arena.ToString(), " at offset ", overlap.offset, " that ",
                              block_name(first, overlap.first_block, " of "),
                              FieldOf(overlap.first, first, overlap.first_block), " writes too"),
                 Reason::kRangeOverlap)});
  }
}

// What belongs to the batch as a whole.
struct BatchOptions {
  absl::Duration deadline;  // zero: none given
  int32_t priority = 0;
  Route route = Route::kUnspecified;
};

// `what` tells requests apart that are encoded alike.
template <typename Request>
void ConvertId(const Request& request, int what, PostBatch& batch) {
  if (request.request_id().size() > kMaxRequestIdBytes) {
    batch.violations.push_back(
        {"request_id", Invalid(absl::StrCat("at most ", kMaxRequestIdBytes, " bytes, not ",
                                            request.request_id().size()))});
  } else if (!request.request_id().empty()) {
    batch.request_id = request.request_id();
    batch.request_hash = absl::HashOf(what, request.SerializeAsString());
  }
}
void ConvertId(const PlainRequest&, int, PostBatch&) {}  // has none

template <typename Request>
void ConvertIdAndDomain(const Request& request, int what, PostBatch& batch) {
  ConvertId(request, what, batch);
  const absl::string_view domain = request.domain();
  if (domain.size() > kMaxDomainBytes) {
    batch.violations.push_back({"domain", Invalid(absl::StrCat("at most ", kMaxDomainBytes,
                                                               " bytes, not ", domain.size()))});
  }
  batch.domain = std::string(domain);
}

BatchOptions ConvertOptions(const v1::PostOptions& given, PostBatch& batch) {
  BatchOptions options;
  const auto bad = [&batch](const char* field, absl::Status status) {
    batch.violations.push_back({field, std::move(status)});
  };
  batch.over_timeline = given.over_timeline();
  if (batch.over_timeline >= FERRY_TIMELINE_COUNTERS) {
    bad("options.over_timeline", Invalid(absl::StrCat("counter ", batch.over_timeline,
                                                      " is not below ", FERRY_TIMELINE_COUNTERS)));
  }
  if (given.has_deadline()) {
    absl::Status status = SetDeadline(given.deadline(), options.deadline);
    if (!status.ok()) bad("options.deadline", std::move(status));
  }
  options.priority = given.priority();
  if (options.priority < -kMaxPriority || options.priority > kMaxPriority) {
    bad("options.priority", Invalid(absl::StrCat(options.priority, " is not within -100 to 100")));
  }
  // Who looks at the rest of a bad batch meets known ones only.
  if (given.route() < 0 || given.route() >= kRoutes) {
    bad("options.route", Invalid(absl::StrCat("route ", given.route(), " is unknown")));
  } else {
    options.route = static_cast<Route>(given.route());
  }
  batch.continues = given.continues();
  return options;
}

// Whether a batch of so many entries and bytes is looked at.
absl::Status CheckSize(const char* call, const char* what, size_t count, size_t bytes) {
  if (count > kMaxBatchTransfers) {
    return Invalid(absl::StrCat(call, ": ", count, " ", what, " in one batch, at most ",
                                kMaxBatchTransfers, "; post several batches"),
                   Reason::kBatchTooLarge);
  }
  if (bytes > kMaxBatchBytes) {
    return Invalid(absl::StrCat(call, ": a batch of ", bytes, " bytes, at most ", kMaxBatchBytes,
                                "; post several batches"),
                   Reason::kBatchTooLarge);
  }
  return absl::OkStatus();
}

template <typename Request, typename Remotes>
PostBatch ConvertBatch(const Request& request, size_t bytes, Side side, const Remotes& remotes) {
  const bool send = side == Side::kSend;
  const char* const call = send ? "CrossHostSendBuffers" : "CrossHostReceiveBuffers";
  const char* const remote_name = send ? "dst_global_device_ids" : "src_global_device_ids";
  PostBatch batch;
  batch.side = side;
  batch.device = GlobalDeviceId(request.device_id());
  const size_t count = static_cast<size_t>(request.buffers_size());
  batch.size = count;
  const auto bad = [&batch](std::string field, absl::Status status) {
    batch.violations.push_back({std::move(field), std::move(status)});
  };
  if (count != static_cast<size_t>(remotes.size()) ||
      count != static_cast<size_t>(request.transfer_keys_size())) {
    bad("buffers",
        Invalid(absl::StrCat(call, ": buffers, ", remote_name,
                             ", and transfer_keys must have the same length, but got ", count, ", ",
                             remotes.size(), ", and ", request.transfer_keys_size(), ".")));
    return batch;
  }
  if (absl::Status size = CheckSize(call, "transfers", count, bytes); !size.ok()) {
    bad("buffers", std::move(size));
    return batch;
  }
  if (side == Side::kReceive && count == 0) {
    bad("buffers", Invalid("shapes parameter empty in CrossHostReceiveBuffers"));
  }
  ConvertIdAndDomain(request, static_cast<int>(side), batch);
  const BatchOptions options = ConvertOptions(request.options(), batch);
  batch.prepare = request.prepare();
  if (batch.prepare && count == 0) bad("buffers", Invalid("a prepared batch has one at least"));
  batch.specs.resize(count);
  batch.deadlines.resize(count, options.deadline);
  for (size_t i = 0; i < count; ++i) {
    const auto bad_entry = [&](const std::string& field, absl::Status status) {
      batch.bad_entries.insert(i);
      bad(field, std::move(status));
    };
    TransferSpec& spec = batch.specs[i];
    const auto& buffer = request.buffers(static_cast<int>(i));
    const absl::string_view key = request.transfer_keys(static_cast<int>(i));
    spec.side = side;
    spec.prepared = batch.prepare;
    spec.priority = options.priority;
    spec.route = options.route;
    const GlobalDeviceId remote(remotes[static_cast<int>(i)]);
    spec.key.source = side == Side::kSend ? batch.device : remote;
    spec.key.destination = side == Side::kSend ? remote : batch.device;
    if (key.empty() || key.size() > kMaxKeyBytes) {
      bad_entry(absl::StrCat("transfer_keys[", i, "]"),
                Invalid(absl::StrCat("a key has 1 to ", kMaxKeyBytes, " bytes, not ", key.size())));
    } else {
      spec.key.key.assign(key.data(), key.size());
    }
    std::string field;
    if (absl::Status status = ConvertBuffer(buffer, spec, field); !status.ok()) {
      bad_entry(absl::StrCat("buffers[", i, "]", field), std::move(status));
    }
    if (batch.prepare && buffer.has_defined_at()) {
      bad_entry(absl::StrCat("buffers[", i, "].defined_at"),
                Invalid("a prepared transfer is fired by its batch's own words"));
    }
    if (buffer.has_deadline()) {
      absl::Status status = SetDeadline(buffer.deadline(), batch.deadlines[i]);
      if (!status.ok()) bad_entry(absl::StrCat("buffers[", i, "].deadline"), std::move(status));
    }
  }
  CheckPieces(batch);
  if (side == Side::kReceive) CheckOverlaps(batch);
  if (batch.prepare) {
    std::vector<Range> extents;
    for (const TransferSpec& spec : batch.specs) {
      extents.insert(extents.end(), spec.layout.extents().begin(), spec.layout.extents().end());
    }
    batch.extents = Union(std::move(extents));
  }
  return batch;
}

}  // namespace

PostBatch Convert(const v1::CrossHostSendRequest& request, std::optional<size_t> bytes) {
  return ConvertBatch(request, bytes.has_value() ? *bytes : request.ByteSizeLong(), Side::kSend,
                      request.dst_global_device_ids());
}

PostBatch Convert(const v1::CrossHostReceiveRequest& request, std::optional<size_t> bytes) {
  return ConvertBatch(request, bytes.has_value() ? *bytes : request.ByteSizeLong(), Side::kReceive,
                      request.src_global_device_ids());
}

PostBatch Convert(const PlainRequest& request, Side side, size_t bytes) {
  return ConvertBatch(request, bytes, side, request.remotes());
}

PostBatch Convert(const v1::RunRequest& request) {
  constexpr int kWhat = 2;  // neither side of a transfer
  constexpr size_t kFingerprintBytes = 32;
  PostBatch batch;
  batch.runs_programs = true;
  batch.device = GlobalDeviceId(request.device_id());
  batch.size = static_cast<size_t>(request.runs_size());
  const auto bad = [&batch](std::string field, absl::Status status) {
    batch.violations.push_back({std::move(field), std::move(status)});
  };
  absl::Status size = CheckSize("Run", "runs", batch.size, request.ByteSizeLong());
  if (!size.ok()) {
    bad("runs", std::move(size));
    return batch;
  }
  if (batch.size == 0) bad("runs", Invalid("there must be at least one"));
  ConvertIdAndDomain(request, kWhat, batch);
  const BatchOptions options = ConvertOptions(request.options(), batch);
  batch.prepare = request.prepare();
  batch.specs.resize(batch.size);
  batch.jobs.resize(batch.size);
  batch.deadlines.resize(batch.size, options.deadline);
  for (size_t i = 0; i < batch.size; ++i) {
    const v1::ProgramRun& run = request.runs(static_cast<int>(i));
    const auto bad_entry = [&](const std::string& field, absl::Status status) {
      batch.bad_entries.insert(i);
      bad(field, std::move(status));
    };
    const auto field = [&](const char* name) { return absl::StrCat("runs[", i, "].", name); };
    TransferSpec& spec = batch.specs[i];
    spec.priority = options.priority;
    spec.route = options.route;
    spec.prepared = batch.prepare;
    JobSpec& job = batch.jobs[i];
    job.fingerprint = run.fingerprint();
    if (job.fingerprint.size() != kFingerprintBytes) {
      bad_entry(field("fingerprint"),
                Invalid(absl::StrCat("a fingerprint has 32 bytes, not ", job.fingerprint.size())));
    }
    if (static_cast<size_t>(run.bindings_size()) > compute::kMaxBuffers) {
      bad_entry(field("bindings"), Invalid(absl::StrCat("at most ", compute::kMaxBuffers, ", not ",
                                                        run.bindings_size())));
      continue;
    }
    std::vector<Range> ranges;
    for (const v1::ProgramBinding& binding : run.bindings()) {
      const v1::BufferRange& range = binding.range();
      ranges.push_back({ArenaId(range.arena_id()), range.offset(), range.length()});
      job.bindings.push_back({binding.name(), DTypeOf(binding.data_type())});
      if (binding.has_prepared_batch()) {
        job.bindings.back().prepared = binding.prepared_batch();
        if (!batch.prepare) {
          bad_entry(BindingField(i, ranges.size() - 1),
                    Invalid("prepared_batch is for prepared jobs; this one says what it comes "
                            "after and feeds"));
        }
      }
      if (binding.data_type() != v1::DATA_TYPE_UNSPECIFIED && !job.bindings.back().type) {
        bad_entry(BindingField(i, ranges.size() - 1),
                  Invalid(absl::StrCat("no value has data_type ", binding.data_type())));
      }
    }
    spec.layout = Layout(std::move(ranges));
    spec.bytes = spec.layout.bytes();
    if (run.has_defined_at()) {
      absl::Status defined = ConvertDefinedAt(run.defined_at(), spec);
      if (!defined.ok()) bad_entry(field("defined_at"), std::move(defined));
    }
    if (static_cast<size_t>(run.peers_size()) > compute::kMaxBuffers) {
      bad_entry(field("peers"), Invalid(absl::StrCat("at most ", compute::kMaxBuffers, ", not ",
                                                     run.peers_size())));
    } else {
      for (const v1::ProgramPeer& peer : run.peers()) {
        job.peers.push_back({peer.name(), GlobalDeviceId(peer.device_id())});
      }
    }
    job.key_suffix = run.key_suffix();
    if (job.key_suffix.size() > kMaxKeyBytes) {
      bad_entry(field("key_suffix"), Invalid(absl::StrCat("at most ", kMaxKeyBytes, " bytes, not ",
                                                          job.key_suffix.size())));
    }
    job.after = {run.after().first(), run.after().count()};
    job.feeds = {run.feeds().first(), run.feeds().count()};
    for (const auto& [name, ids] :
         {std::make_pair("after", job.after), std::make_pair("feeds", job.feeds)}) {
      if (ids.count <= kMaxBatchTransfers) continue;
      bad_entry(field(name),
                Invalid(absl::StrCat("at most ", kMaxBatchTransfers, ", not ", ids.count)));
    }
    job.defines_timeline = run.defines().timeline();
    job.defines_value = run.defines().value();
    if (job.defines_timeline >= FERRY_TIMELINE_COUNTERS) {
      bad_entry(field("defines"), Invalid(absl::StrCat("counter ", job.defines_timeline,
                                                       " is not below ", FERRY_TIMELINE_COUNTERS)));
    }
    for (const auto& [name, given] :
         {std::make_pair("defined_at", run.has_defined_at()),
          std::make_pair("after", run.has_after()), std::make_pair("defines", run.has_defines()),
          std::make_pair("feeds", run.has_feeds())}) {
      if (!batch.prepare || !given) continue;
      bad_entry(field(name), Invalid("a prepared job is fired by its batch's own words, and joined "
                                     "to prepared transfers by what is bound"));
    }
    if (run.has_deadline()) {
      absl::Status status = SetDeadline(run.deadline(), batch.deadlines[i]);
      if (!status.ok()) bad_entry(field("deadline"), std::move(status));
    }
  }
  return batch;
}

void ToProto(const DeviceInfo& device, v1::Device* out) {
  out->set_global_device_id(device.id.value());
  out->set_kind(device.gpu ? v1::Device::KIND_GPU : v1::Device::KIND_HOST);
  out->set_name(device.name);
  out->set_uuid(device.uuid);
}

}  // namespace ferry
