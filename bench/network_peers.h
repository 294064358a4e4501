// SPDX-License-Identifier: Apache-2.0
// What Ferry's tcp and ucx routes are measured against: UCX's own benchmark, and a bare TCP socket.
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "bench/nodes.h"

namespace ferry::bench {

// The overall bandwidth in what `ucx_perftest -f -v` prints, in GB/s; 0 if there is none.
double ParseUcxPerftest(absl::string_view output);

// `ucx_perftest -t tag_bw` between two processes with these transports (UCX_TLS), in GB/s.
absl::StatusOr<double> MeasureUcxPerftest(const std::string& transports, uint64_t bytes,
                                          int iterations,
                                          const std::vector<std::string>& more = {});

// The median of half of so many round trips of 8 bytes between two threads over loopback, both
// asleep while they wait.
absl::StatusOr<absl::Duration> BareTcpHalfRoundTrip(int times);

// The same where each end has a thread between it and the connection, as a daemon's lane is: rung
// by an eventfd, waiting for that and for the connection at once, it passes on 8 bytes and wakes
// its end by a futex. It does nothing else: what a transfer takes by threads that sleep cannot be
// less.
absl::StatusOr<absl::Duration> RelayedTcpHalfRoundTrip(int times);

// A stream of `bytes` through a TCP connection over loopback, from one thread to another, from the
// first write to the last read.
class RawTcp {
 public:
  explicit RawTcp(uint64_t bytes);
  ~RawTcp();
  RawTcp(const RawTcp&) = delete;
  RawTcp& operator=(const RawTcp&) = delete;
  absl::StatusOr<absl::Duration> Run();

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace ferry::bench
