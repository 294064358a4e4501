// SPDX-License-Identifier: Apache-2.0
// What Ferry's routes tcp and ucx are compared with: UCX's own benchmark, and a bare TCP socket.
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

// The overall bandwidth, in GB/s, in the output of `ucx_perftest -f -v`; 0 if there is none.
double ParseUcxPerftest(absl::string_view output);

// Runs `ucx_perftest -t tag_bw` between two processes with these transports (UCX_TLS). Returns
// GB/s.
absl::StatusOr<double> MeasureUcxPerftest(const std::string& transports, uint64_t bytes,
                                          int iterations,
                                          const std::vector<std::string>& more = {});

// Half of the median round trip of 8 bytes, over `times`, between two threads over loopback. Both
// sleep while they wait.
absl::StatusOr<absl::Duration> BareTcpHalfRoundTrip(int times);

// The same with a thread between each end and the connection, as a daemon's lane is. The thread is
// rung by an eventfd, waits for that and for the connection at once, passes on 8 bytes and wakes
// its end by a futex. It does nothing else, so no transfer by threads that sleep can be faster.
absl::StatusOr<absl::Duration> RelayedTcpHalfRoundTrip(int times);

// Streams `bytes` through a TCP connection over loopback, from one thread to another. Run measures
// from the first write to the last read.
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
