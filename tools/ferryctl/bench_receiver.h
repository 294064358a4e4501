// SPDX-License-Identifier: Apache-2.0
// The receiving end of a measurement: a process with a session of its own. It does what the
// measuring process orders over a SEQPACKET socket, one order and one answer at a time. Times are
// of CLOCK_MONOTONIC, which all processes of a host share.
#pragma once

#include <cstdint>

namespace ferry::tools {

enum class BenchOrderKind : uint32_t {
  kOpen,     // open the session
  kArena,    // drop the arena and make another of `bytes` (flags: FERRY_ARENA_*)
  kFill,     // fill the arena with the contents of number `key`; forget what has moved
  kPost,     // post `count` receives of `bytes` at successive offsets, keys `key`, `key` + 1, ...
  kBlocks,   // post one receive of `count` blocks of `bytes` by block table
  kPrepare,  // prepare the receives of kPost
  kPrepareBlocks,  // prepare the receive of kBlocks
  kFire,           // fire once what is prepared
  kFireMany,  // fire `count` times, each when the one before is over; answer when the last was over
  kPreparePing,  // prepare one transfer of `bytes` each way
  kPong,         // send back what comes, `count` times
  kAwait,        // wait until all that was posted or fired is over; answer when it was
  // Receive `count` of `bytes` in batches of `batch`, `window` batches at once, to the end
  kStream,
  kPark,    // post `count` receives that nobody will answer
  kUnpark,  // cancel them
  kSum,     // sum all bytes that were moved since the arena was made or filled
};

struct BenchOrder {
  BenchOrderKind kind = BenchOrderKind::kOpen;
  uint32_t flags = 0;
  uint64_t key = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t batch = 0;
  uint64_t window = 0;
  // The rest is for kOpen only.
  int64_t device = -1;
  uint64_t remote_device = 0;
  int32_t route = 0;
  uint64_t patience_ns = 0;  // UINT64_MAX: no limit
  char client_dir[256] = {};
  char domain[33] = {};
};

struct BenchAnswer {
  int32_t code = 0;    // absl::StatusCode
  int32_t reason = 0;  // Reason, if `code` is not OK
  char text[376] = {};
  int64_t nanoseconds = 0;  // kAwait, kStream: when the last was over; kArena: how long it took
  uint64_t value = 0;       // kOpen: the receiver's device; kSum: the sum
};

// Carries out orders until the socket closes. Returns the process's exit status.
int RunBenchReceiver(int socket);

}  // namespace ferry::tools
