// SPDX-License-Identifier: Apache-2.0
// libferry for the tools: owning pointers to its handles, its errors as absl::Status, and batches
// made of ranges of one arena. Handles may be used from any thread, as ferry.h says. What a session
// has made may be freed after the session (ferry.h lets handles outlive it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ferry/ferry.h"

namespace ferry::tools {

struct CloseSession {
  void operator()(ferry_session* session) const { ferry_session_close(session); }
};
struct FreeArena {
  void operator()(ferry_arena* arena) const { ferry_arena_free(arena); }
};
struct FreeBatch {
  void operator()(ferry_batch* batch) const { ferry_batch_free(batch); }
};
using SessionPtr = std::unique_ptr<ferry_session, CloseSession>;
using ArenaPtr = std::unique_ptr<ferry_arena, FreeArena>;
using BatchPtr = std::unique_ptr<ferry_batch, FreeBatch>;
struct FreePrepared {
  void operator()(ferry_prepared* prepared) const { ferry_prepared_free(prepared); }
};
using PreparedPtr = std::unique_ptr<ferry_prepared, FreePrepared>;

struct SessionOptions {
  std::string client_dir;
  std::string name;
  absl::Duration timeout = absl::Seconds(10);
};
absl::StatusOr<SessionPtr> OpenSession(const SessionOptions& options);

// `wanted`, if it is one of the daemon's own devices; the first own device if `wanted` is -1.
absl::StatusOr<uint64_t> OwnDevice(const ferry_session* session, int64_t wanted);

absl::StatusOr<ArenaPtr> CreateArena(ferry_session* session, uint64_t device, uint64_t bytes,
                                     unsigned flags = 0);
inline std::byte* DataOf(const ArenaPtr& arena) {
  return static_cast<std::byte*>(ferry_arena_data(arena.get()));
}

enum class End { kSend, kReceive };

// One transfer: a contiguous range of the batch's arena. A transfer without bytes needs no arena.
struct RangeTransfer {
  std::string key;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  int data_type = FERRY_UNSPECIFIED;
  std::vector<int64_t> dims;  // compared at the other end only with a data type
};

// What all transfers of a batch have in common.
struct PostTarget {
  End end = End::kSend;
  uint64_t device = 0;  // one of the daemon's own devices
  uint64_t remote_device = 0;
  std::string domain;  // empty: the uid's own
  int route = FERRY_ROUTE_ANY;
  absl::Duration deadline = absl::ZeroDuration();  // zero: the daemon's default
  uint32_t over_timeline = 0;
  uint32_t defined_timeline = 0;
  // Value of that 'defined' counter at which the bytes are there; 0: they are there now.
  uint64_t defined_at = 0;
  // A transfer of the session that the batch belongs to, see ferry_post_options.
  uint64_t continues = 0;
};

absl::StatusOr<BatchPtr> Post(ferry_session* session, const PostTarget& target,
                              const ferry_arena* arena, absl::Span<const RangeTransfer> transfers);

// As Post; the transfers can then be fired again and again.
absl::StatusOr<PreparedPtr> Prepare(ferry_session* session, const PostTarget& target,
                                    const ferry_arena* arena,
                                    absl::Span<const RangeTransfer> transfers);

// Posts one transfer of blocks that are picked by index.
absl::StatusOr<BatchPtr> PostBlocks(ferry_session* session, const PostTarget& target,
                                    const std::string& key, const ferry_block_table& blocks);
absl::StatusOr<PreparedPtr> PrepareBlocks(ferry_session* session, const PostTarget& target,
                                          const std::string& key, const ferry_block_table& blocks);

// A duration as the C ABI has it: nanoseconds; UINT64_MAX if infinite.
uint64_t ToFerry(absl::Duration duration);

// The route that a transfer took, for people; "unknown" if the daemon has forgotten it.
std::string RouteTaken(ferry_session* session, uint64_t transfer);

absl::Status Wait(const BatchPtr& batch, absl::Duration timeout = absl::InfiniteDuration());

}  // namespace ferry::tools
