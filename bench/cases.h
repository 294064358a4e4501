// SPDX-License-Identifier: Apache-2.0
// The cases of the speed table, each of which adds rows to the report. Ferry and what it is
// compared with take turns, `rounds` times, and medians are compared, so that a busy machine
// disturbs both alike.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/nodes.h"
#include "bench/report.h"
#include "tools/ferryctl/bench_pair.h"
#include "tools/ferryctl/statistics.h"

namespace ferry {
class Status;
}

namespace ferry::bench {

inline constexpr uint64_t kLarge = uint64_t{256} << 20;
inline constexpr uint64_t kSmall = uint64_t{64} << 10;
// A rate is measured with this many transfers, of this size, so many in a batch, with so many
// batches in flight.
inline constexpr uint64_t kRateCount = 100'000;
inline constexpr uint64_t kRateBytes = 4096;
inline constexpr uint64_t kRateBatch = 1024;
inline constexpr uint64_t kRateWindow = 4;
// How many calls a round measures, of what takes microseconds.
inline constexpr int kCallsPerRound = 500;

// The longest wait for one order to a receiver's process: many times what any of them takes.
inline constexpr absl::Duration kOrderPatience = absl::Seconds(120);

struct Settings {
  std::string self;  // this program, which also runs as the other ends
  std::string ferryd;
  std::string ferryctl;
  int rounds = 5;
};

// The median of many `once`, in microseconds. `once` returns a StatusOr<Duration>.
template <typename Once>
absl::StatusOr<double> MedianMicroseconds(Once once) {
  std::vector<double> samples;
  for (int i = 0; i < kCallsPerRound; ++i) {
    ASSIGN_OR_RETURN(absl::Duration elapsed, once());
    samples.push_back(absl::ToDoubleMicroseconds(elapsed));
  }
  return tools::Median(std::move(samples));
}

// The client library's error as a Status.
absl::Status Failed(const char* doing, const ferry::Status& why);

// A sender at node `from` and a receiver at node `to`.
absl::StatusOr<tools::BenchPair> OpenPair(const Settings& settings, const Nodes& nodes, int from,
                                          int to, int route);

// 256 MiB over `local` and `mapped`, and 1,000 x 64 KiB.
absl::Status MeasureCopies(const Settings& settings, const Nodes& nodes, Report& report);
// 10,000 blocks of 4 KiB by block table, as one transfer over `mapped`.
absl::Status MeasureBlocks(const Settings& settings, const Nodes& nodes, Report& report);
// 256 MiB over `ucx`; over TCP also 1,000 x 64 KiB.
absl::Status MeasureUcx(const Settings& settings, const Nodes& nodes, UcxOver over, Report& report);
// 256 MiB, 1,000 x 64 KiB and 8 bytes over `tcp`; `nodes` have UCX over TCP beside it.
absl::Status MeasureTcp(const Settings& settings, const Nodes& nodes, Report& report);
// 8 bytes, posted.
absl::Status MeasureLatency(const Settings& settings, const Nodes& nodes, Report& report);
// 8 bytes prepared, and 1,024 x 4 KiB prepared against posted.
absl::Status MeasurePrepared(const Settings& settings, const Nodes& nodes, Report& report);
// Jobs of 4 KiB, posted and prepared.
absl::Status MeasureJobs(const Settings& settings, const Nodes& nodes, Report& report);
// A program that sends MXFP8 over a slow link against sending bfloat16; `nodes` have UCX over TCP.
absl::Status MeasureLimited(const Settings& settings, const Nodes& nodes, Report& report);
// 100,000 x 4 KiB in batches of 1,024.
absl::Status MeasureRate(const Settings& settings, const Nodes& nodes, Report& report);
// 1 GB from file to file, by ferryctl over `mapped` and `tcp`.
absl::Status MeasureFiles(const Settings& settings, const Nodes& nodes, Report& report);
// A daemon is killed under 64 waiters of a client, and started again.
absl::Status MeasureLoss(const Settings& settings, Nodes& nodes, Report& report);
// 10,000 posted receives that nobody answers, and idle sessions.
absl::Status MeasurePosted(const Settings& settings, const Nodes& nodes, Report& report);
// 64 KiB beside a stream of another session; two sessions that stream at once.
absl::Status MeasureFairness(const Settings& settings, const Nodes& nodes, Report& report);
struct SharingRows {
  uint64_t stream;  // how many transfers of kLarge the stream of one session has
  std::string behind;
  double behind_us;  // the most that this row may take
  std::string share;
};
// The same between any three pairs; makes their arenas.
absl::Status MeasureSharing(tools::BenchPair& small, tools::BenchPair& one, tools::BenchPair& other,
                            int rounds, const SharingRows& rows, Report& report);
// 100,000 pending receives and 1,000 idle sessions at `crowded`; nothing at `empty`.
absl::Status MeasureCrowd(const Settings& settings, const Nodes& empty, const Nodes& crowded,
                          Report& report);

}  // namespace ferry::bench
