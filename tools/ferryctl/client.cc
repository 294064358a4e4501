// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/client.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {

uint64_t ToFerry(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return UINT64_MAX;
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration));
}

namespace {

ferry_post_options OptionsOf(const PostTarget& target) {
  ferry_post_options options{};
  options.struct_size = sizeof(options);
  options.domain = target.domain.empty() ? nullptr : target.domain.data();
  options.domain_bytes = target.domain.size();
  options.over_timeline = target.over_timeline;
  options.deadline_ns = ToFerry(target.deadline);
  options.route = target.route;
  options.continues = target.continues;
  return options;
}

absl::StatusOr<BatchPtr> PostRaw(ferry_session* session, const PostTarget& target,
                                 const std::vector<ferry_transfer>& transfers) {
  const ferry_post_options options = OptionsOf(target);
  ferry_batch* batch = nullptr;
  const auto post = target.end == End::kSend ? ferry_cross_host_send : ferry_cross_host_receive;
  RETURN_IF_ERROR(FromFerry(
      post(session, target.device, transfers.data(), transfers.size(), &options, &batch)));
  return BatchPtr(batch);
}

absl::StatusOr<PreparedPtr> PrepareRaw(ferry_session* session, const PostTarget& target,
                                       const std::vector<ferry_transfer>& transfers) {
  const ferry_post_options options = OptionsOf(target);
  ferry_prepared* prepared = nullptr;
  const auto prepare = target.end == End::kSend ? ferry_prepare_send : ferry_prepare_receive;
  RETURN_IF_ERROR(FromFerry(
      prepare(session, target.device, transfers.data(), transfers.size(), &options, &prepared)));
  return PreparedPtr(prepared);
}

// The result points to the key and the blocks.
ferry_transfer RawBlocks(const PostTarget& target, const std::string& key,
                         const ferry_block_table& blocks) {
  ferry_transfer transfer{};
  transfer.remote_device = target.remote_device;
  transfer.key = key.data();
  transfer.key_bytes = key.size();
  transfer.blocks = &blocks;
  return transfer;
}

// The transfers as the C ABI takes them; the result points to them.
struct RawTransfers {
  RawTransfers(const PostTarget& target, const ferry_arena* arena,
               absl::Span<const RangeTransfer> wanted)
      : ranges(wanted.size()), transfers(wanted.size()) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const RangeTransfer& from = wanted[i];
      ranges[i] = {arena, from.offset, from.bytes};
      ferry_transfer& transfer = transfers[i];
      transfer = {};
      transfer.remote_device = target.remote_device;
      transfer.key = from.key.data();
      transfer.key_bytes = from.key.size();
      transfer.ranges = from.bytes == 0 ? nullptr : &ranges[i];
      transfer.range_count = from.bytes == 0 ? 0 : 1;
      transfer.has_defined_at = target.defined_at != 0;
      transfer.defined_timeline = target.defined_timeline;
      transfer.defined_value = target.defined_at;
      transfer.data_type = from.data_type;
      if (from.data_type != FERRY_UNSPECIFIED) {
        static constexpr int64_t kScalar =
            0;  // no dimensions are said by a pointer and a count of 0
        transfer.dims = from.dims.empty() ? &kScalar : from.dims.data();
        transfer.dim_count = from.dims.size();
      }
    }
  }
  std::vector<ferry_range> ranges;
  std::vector<ferry_transfer> transfers;
};

}  // namespace

absl::StatusOr<SessionPtr> OpenSession(const SessionOptions& options) {
  ferry_session_options raw{};
  raw.struct_size = sizeof(raw);
  raw.client_dir = options.client_dir.c_str();
  raw.name = options.name.empty() ? nullptr : options.name.c_str();
  raw.timeout_ns = ToFerry(options.timeout);
  raw.no_reattach = 1;  // a command ends when its daemon does
  ferry_session* session = nullptr;
  RETURN_IF_ERROR(FromFerry(ferry_session_open(&raw, &session)));
  return SessionPtr(session);
}

absl::StatusOr<uint64_t> OwnDevice(const ferry_session* session, int64_t wanted) {
  std::string known;
  for (size_t i = 0; i < ferry_session_devices(session); ++i) {
    const uint64_t id = ferry_session_device(session, i).global_device_id;
    if (wanted < 0 || id == static_cast<uint64_t>(wanted)) return id;
    absl::StrAppend(&known, known.empty() ? "" : ", ", id);
  }
  const std::string node = ferry_session_node(session);
  if (known.empty()) {
    return Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
                 absl::StrCat("node ", node, " has no devices"));
  }
  return Error(
      absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
      absl::StrCat("device ", wanted, " is not of node ", node, ", whose devices are ", known));
}

absl::StatusOr<ArenaPtr> CreateArena(ferry_session* session, uint64_t device, uint64_t bytes,
                                     unsigned flags) {
  ferry_arena* arena = nullptr;
  RETURN_IF_ERROR(FromFerry(ferry_arena_create(session, device, bytes, flags, &arena)));
  return ArenaPtr(arena);
}

absl::StatusOr<BatchPtr> PostBlocks(ferry_session* session, const PostTarget& target,
                                    const std::string& key, const ferry_block_table& blocks) {
  return PostRaw(session, target, {RawBlocks(target, key, blocks)});
}

absl::StatusOr<PreparedPtr> PrepareBlocks(ferry_session* session, const PostTarget& target,
                                          const std::string& key, const ferry_block_table& blocks) {
  return PrepareRaw(session, target, {RawBlocks(target, key, blocks)});
}

absl::StatusOr<BatchPtr> Post(ferry_session* session, const PostTarget& target,
                              const ferry_arena* arena, absl::Span<const RangeTransfer> wanted) {
  return PostRaw(session, target, RawTransfers(target, arena, wanted).transfers);
}

absl::StatusOr<PreparedPtr> Prepare(ferry_session* session, const PostTarget& target,
                                    const ferry_arena* arena,
                                    absl::Span<const RangeTransfer> wanted) {
  return PrepareRaw(session, target, RawTransfers(target, arena, wanted).transfers);
}

std::string RouteTaken(ferry_session* session, uint64_t transfer) {
  const int route = ferry_transfer_route(session, transfer);
  return route == FERRY_ROUTE_ANY ? "unknown" : RouteText(route);
}

absl::Status Wait(const BatchPtr& batch, absl::Duration timeout) {
  return FromFerry(ferry_batch_wait(batch.get(), ToFerry(timeout)));
}

}  // namespace ferry::tools
