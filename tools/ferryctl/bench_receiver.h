// SPDX-License-Identifier: Apache-2.0
// The receiving end of a measurement: a process of its own with a session of its own that does what
// the measuring process orders over a SEQPACKET socket, one order and one answer at a time. Times
// are CLOCK_MONOTONIC, which all processes of a host share.
#pragma once

#include <cstdint>

namespace ferry::tools {

enum class BenchOrderKind : uint32_t {
  kOpen,           // the session
  kArena,          // drop the arena, make another of `bytes` (flags: FERRY_ARENA_*)
  kFill,           // the arena, with the contents of number `key`; what has moved counts no more
  kPost,           // `count` receives of `bytes` at successive offsets, keys `key`, `key` + 1, ...
  kBlocks,         // one receive of `count` blocks of `bytes` by block table
  kPrepare,        // the same `count` receives, prepared
  kPrepareBlocks,  // the same one receive of blocks, prepared
  kFire,           // what is prepared, once
  kFireMany,       // `count` times, each when the one before is over; answers when the last was
  kPreparePing,    // one transfer of `bytes` each way, prepared
  kPong,           // what comes is sent back, `count` times
  kAwait,          // until all that was posted or fired is over; answers when that was
  kStream,  // `count` receives of `bytes` in batches of `batch`, `window` batches at once; to the
            // end
  kPark,    // `count` receives that nobody will answer
  kUnpark,  // cancel them
  kSum,     // checksum of all bytes that were moved since the arena was made or filled
};

struct BenchOrder {
  BenchOrderKind kind = BenchOrderKind::kOpen;
  uint32_t flags = 0;
  uint64_t key = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t batch = 0;
  uint64_t window = 0;
  // kOpen only.
  int64_t device = -1;
  uint64_t remote_device = 0;
  int32_t route = 0;
  int32_t post_by = 0;       // FERRY_POST_BY_...
  uint64_t patience_ns = 0;  // UINT64_MAX: none
  char client_dir[256] = {};
  char domain[33] = {};
};

struct BenchAnswer {
  int32_t code = 0;    // absl::StatusCode
  int32_t reason = 0;  // Reason, if there is a code
  char text[376] = {};
  int64_t nanoseconds = 0;  // kAwait, kStream: when the last was over; kArena: how long it took
  uint64_t value = 0;       // kOpen: its device; kSum: the sum
};

// Obeys until the socket closes. Returns the process's exit status.
int RunBenchReceiver(int socket);

}  // namespace ferry::tools
