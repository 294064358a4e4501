// SPDX-License-Identifier: Apache-2.0
// What Ferry's ucx route is measured against: UCX's own benchmark, and a bare TCP socket. One
// thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "bench/nodes.h"

namespace ferry::bench {

// The overall bandwidth in what `ucx_perftest -f -v` prints, in GB/s; 0 if there is none.
double ParseUcxPerftest(absl::string_view output);

// `ucx_perftest -t tag_bw` between two processes, in GB/s.
absl::StatusOr<double> MeasureUcxPerftest(UcxOver over, uint64_t bytes, int iterations);

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
