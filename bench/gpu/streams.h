// SPDX-License-Identifier: Apache-2.0
// Streams of a program that store 'defined' words and wait for 'over' words, measured from the
// host. One thread.
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

// A prepared transfer of 8 bytes, with a session and a stream of this process at either end.
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

  // The median of `times` measurements from a store by the source's stream to the end of the
  // destination's stream, which waits for the transfer.
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

// Kills the daemon of `node` while streams of this process wait, each for a transfer on `device`
// that nobody will send. Returns how long it took until all streams had gone on. When it returns,
// the daemon was started again and the session is attached to it.
absl::StatusOr<absl::Duration> KillUnderStreams(const testing::GpuDriver& driver, Nodes& nodes,
                                                int node, uint64_t device);

}  // namespace ferry::bench
