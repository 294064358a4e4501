// SPDX-License-Identifier: Apache-2.0
// Streams of a program that say 'defined' and wait for 'over', as their host sees it. One thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/nodes.h"
#include "ferry/cuda.hpp"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// A session and a stream of this process at either end of 8 bytes that are prepared.
class StreamPair {
 public:
  struct End {
    std::string client_dir;
    uint64_t device;
  };
  static absl::StatusOr<std::unique_ptr<StreamPair>> Open(const testing::GpuDriver& driver,
                                                          const End& source, const End& destination,
                                                          int route);
  ~StreamPair();
  StreamPair(const StreamPair&) = delete;
  StreamPair& operator=(const StreamPair&) = delete;

  // From a store by the source's stream until the destination's, which waits for it, is done: the
  // median of `times`.
  absl::StatusOr<absl::Duration> Median(uint64_t times);

 private:
  explicit StreamPair(const testing::GpuDriver& driver) : driver_(driver) {}

  const testing::GpuDriver& driver_;
  Session sessions_[2];
  Arena arenas_[2];
  Prepared send_, receive_;
  CUcontext contexts_[2] = {};
  CUstream streams_[2] = {};
};

// The daemon of `node` is killed under streams of this process, each of which waits for a transfer
// on `device` that nobody will send: until all have gone on. It is started again, and the session
// is attached to it when this returns.
absl::StatusOr<absl::Duration> KillUnderStreams(const testing::GpuDriver& driver, Nodes& nodes,
                                                int node, uint64_t device);

}  // namespace ferry::bench
