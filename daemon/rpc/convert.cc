// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/convert.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/rpc/convert_batch.h"
#include "daemon/rpc/plain_request.h"
#include "transfer/overlap.h"

namespace ferry {
namespace {

constexpr int kMaxDims = 8;

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
  size_t ranges = 0, stretches = 0;
  for (size_t i = 0; i < batch.specs.size(); ++i) {
    const Layout& layout = batch.specs[i].layout;
    if (layout.blocks() == nullptr) ranges += layout.extents().size();
    stretches += layout.stretches();
    if (ranges <= kMaxBatchRanges && stretches <= kMaxBatchStretches) continue;
    if (!batch.bad_entries.insert(i).second) continue;
    batch.violations.push_back(
        {absl::StrCat("buffers[", i, "]"),
         Invalid(absl::StrCat(
                     "the buffers of the batch up to this one have ", ranges, " ranges and ",
                     stretches, " pieces that are apart in memory, at most ", kMaxBatchRanges,
                     " and ", kMaxBatchStretches, " can be in one batch; post several batches"),
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

// Whether each buffer has its remote device and its key.
template <typename Request, typename Remotes>
absl::Status CheckLengths(const Request& request, Side side, const char* call,
                          const Remotes& remotes) {
  const size_t count = static_cast<size_t>(request.buffers_size());
  if (count == static_cast<size_t>(remotes.size()) &&
      count == static_cast<size_t>(request.transfer_keys_size())) {
    return absl::OkStatus();
  }
  const char* const remote_name =
      side == Side::kSend ? "dst_global_device_ids" : "src_global_device_ids";
  return Invalid(absl::StrCat(call, ": buffers, ", remote_name,
                              ", and transfer_keys must have the same length, but got ", count,
                              ", ", remotes.size(), ", and ", request.transfer_keys_size(), "."));
}

// Transfer `i` of a batch whose entries are there to be filled in.
template <typename Request>
void ConvertTransfer(const Request& request, size_t i, GlobalDeviceId remote,
                     const BatchOptions& options, PostBatch& batch) {
  const auto bad = [&](std::string field, absl::Status status) {
    batch.bad_entries.insert(i);
    batch.violations.push_back({std::move(field), std::move(status)});
  };
  TransferSpec& spec = batch.specs[i];
  const auto& buffer = request.buffers(static_cast<int>(i));
  const absl::string_view key = request.transfer_keys(static_cast<int>(i));
  spec.side = batch.side;
  spec.prepared = batch.prepare;
  spec.priority = options.priority;
  spec.route = options.route;
  spec.key.source = batch.side == Side::kSend ? batch.device : remote;
  spec.key.destination = batch.side == Side::kSend ? remote : batch.device;
  if (key.empty() || key.size() > kMaxKeyBytes) {
    bad(absl::StrCat("transfer_keys[", i, "]"),
        Invalid(absl::StrCat("a key has 1 to ", kMaxKeyBytes, " bytes, not ", key.size())));
  } else {
    spec.key.key.assign(key.data(), key.size());
  }
  std::string field;
  if (absl::Status status = ConvertBuffer(buffer, spec, field); !status.ok()) {
    bad(absl::StrCat("buffers[", i, "]", field), std::move(status));
  }
  if (batch.prepare && buffer.has_defined_at()) {
    bad(absl::StrCat("buffers[", i, "].defined_at"),
        Invalid("a prepared transfer is fired by its batch's own words"));
  }
  if (buffer.has_deadline()) {
    absl::Status status = SetDeadline(buffer.deadline(), batch.deadlines[i]);
    if (!status.ok()) bad(absl::StrCat("buffers[", i, "].deadline"), std::move(status));
  }
}

// What all transfers of a batch touch together.
std::vector<Range> ExtentsOf(const PostBatch& batch) {
  std::vector<Range> extents;
  for (const TransferSpec& spec : batch.specs) {
    extents.insert(extents.end(), spec.layout.extents().begin(), spec.layout.extents().end());
  }
  return Union(std::move(extents));
}

template <typename Request, typename Remotes>
PostBatch ConvertBatch(const Request& request, size_t bytes, Side side, const Remotes& remotes) {
  const char* const call = side == Side::kSend ? "CrossHostSendBuffers" : "CrossHostReceiveBuffers";
  PostBatch batch;
  batch.side = side;
  batch.device = GlobalDeviceId(request.device_id());
  const size_t count = static_cast<size_t>(request.buffers_size());
  batch.size = count;
  const auto bad = [&batch](absl::Status status) {
    batch.violations.push_back({"buffers", std::move(status)});
  };
  if (absl::Status lengths = CheckLengths(request, side, call, remotes); !lengths.ok()) {
    bad(std::move(lengths));
    return batch;
  }
  if (absl::Status size = CheckSize(call, "transfers", count, bytes); !size.ok()) {
    bad(std::move(size));
    return batch;
  }
  if (side == Side::kReceive && count == 0) {
    bad(Invalid("shapes parameter empty in CrossHostReceiveBuffers"));
  }
  ConvertIdAndDomain(request, static_cast<int>(side), batch);
  const BatchOptions options = ConvertOptions(request.options(), batch);
  batch.prepare = request.prepare();
  if (batch.prepare && count == 0) bad(Invalid("a prepared batch has one at least"));
  batch.specs.resize(count);
  batch.deadlines.resize(count, options.deadline);
  for (size_t i = 0; i < count; ++i) {
    ConvertTransfer(request, i, GlobalDeviceId(remotes[static_cast<int>(i)]), options, batch);
  }
  CheckPieces(batch);
  if (side == Side::kReceive) CheckOverlaps(batch);
  if (batch.prepare) batch.extents = ExtentsOf(batch);
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

void ToProto(const DeviceInfo& device, v1::Device* out) {
  out->set_global_device_id(device.id.value());
  out->set_kind(device.gpu ? v1::Device::KIND_GPU : v1::Device::KIND_HOST);
  out->set_name(device.name);
  out->set_uuid(device.uuid);
}

}  // namespace ferry
