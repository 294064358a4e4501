// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "base/status.h"
#include "bench/cases.h"
#include "bench/network_peers.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/host_copy.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kSmallCount = 1000;
constexpr uint64_t kBlock = uint64_t{4} << 10;
constexpr uint64_t kBlockCount = 10'000;
constexpr int kWarmRuns = 3;
constexpr int kThreads = 2;  // a lane and its helper

struct Rates {
  std::vector<double> cold;
  std::vector<double> warm;
  void Add(std::vector<double>& to, uint64_t bytes, absl::Duration elapsed) {
    to.push_back(tools::GigabytesPerSecond(bytes, elapsed));
  }
};

using RunOf = absl::StatusOr<absl::Duration> (tools::BenchPair::*)(uint64_t, uint64_t);

// One round of transfers: fresh arenas, the first run cold with the making of the destination
// counted.
absl::Status RunPair(tools::BenchPair& pair, uint64_t count, uint64_t bytes, Rates& rates,
                     RunOf run = &tools::BenchPair::Run) {
  const uint64_t total = count * bytes;
  ASSIGN_OR_RETURN(absl::Duration made, pair.MakeArenas(total));
  const auto once = [&] { return (pair.*run)(count, bytes); };
  ASSIGN_OR_RETURN(absl::Duration first, once());
  rates.Add(rates.cold, total, made + first);
  for (int i = 0; i < kWarmRuns; ++i) {
    ASSIGN_OR_RETURN(absl::Duration elapsed, once());
    rates.Add(rates.warm, total, elapsed);
  }
  return pair.Check(once).status();
}

template <typename Copy>
void RunCopy(Copy copy, uint64_t bytes, Rates& rates) {
  tools::Pages from(bytes);
  from.Fill();
  tools::Pages to(bytes);
  rates.Add(rates.cold, bytes, copy(to.data(), from.data(), bytes));
  for (int i = 0; i < kWarmRuns; ++i) {
    rates.Add(rates.warm, bytes, copy(to.data(), from.data(), bytes));
  }
}

absl::Duration Streaming(std::byte* to, const std::byte* from, size_t bytes) {
  return tools::TimeStreamingCopy(to, from, bytes, kThreads);
}

Row MakeRow(const char* name, const Rates& ferry, const char* peer, const Rates& against,
            double target) {
  Row row;
  row.name = name;
  row.unit = "GB/s";
  row.cold = tools::Median(ferry.cold);
  row.warm = tools::Median(ferry.warm);
  row.peer = peer;
  if (!against.cold.empty()) row.peer_cold = tools::Median(against.cold);
  row.peer_warm = tools::Median(against.warm);
  row.target = target;
  return row;
}

}  // namespace

absl::Status MeasureCopies(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(tools::BenchPair local, OpenPair(settings, nodes, 0, 0, FERRY_ROUTE_LOCAL));
  ASSIGN_OR_RETURN(tools::BenchPair mapped, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_MAPPED));
  Rates one_thread, streaming, by_local, by_mapped;
  Rates small_copy, small_streaming, small_local, small_mapped;
  for (int round = 0; round < settings.rounds; ++round) {
    RunCopy(tools::TimeMemcpy, kLarge, one_thread);
    RETURN_IF_ERROR(RunPair(local, 1, kLarge, by_local));
    RunCopy(Streaming, kLarge, streaming);
    RETURN_IF_ERROR(RunPair(mapped, 1, kLarge, by_mapped));
    RunCopy(tools::TimeMemcpy, kSmall * kSmallCount, small_copy);
    RETURN_IF_ERROR(RunPair(local, kSmallCount, kSmall, small_local));
    RunCopy(Streaming, kSmall * kSmallCount, small_streaming);
    RETURN_IF_ERROR(RunPair(mapped, kSmallCount, kSmall, small_mapped));
  }
  const bool streams = tools::Median(streaming.warm) > tools::Median(one_thread.warm);
  report.Add(MakeRow("256 MiB local", by_local, streams ? "2 threads, streaming" : "memcpy",
                     streams ? streaming : one_thread, 0.9));
  report.Add(MakeRow("256 MiB mapped", by_mapped, "memcpy", one_thread, 0.9));
  report.Add(MakeRow("256 MiB mapped", by_mapped, "2 threads, streaming", streaming, 0.75));
  report.Add(MakeRow("1,000 x 64 KiB local", small_local, "one memcpy", small_copy, 1.2));
  report.Add(MakeRow("1,000 x 64 KiB mapped", small_mapped, "one memcpy", small_copy, 1.2));
  const char* const threads = "2 threads, streaming";
  report.Add(MakeRow("1,000 x 64 KiB local", small_local, threads, small_streaming, 0.6));
  report.Add(MakeRow("1,000 x 64 KiB mapped", small_mapped, threads, small_streaming, 0.6));
  return absl::OkStatus();
}

absl::Status MeasureBlocks(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_MAPPED));
  Rates by_table, one_copy;
  for (int round = 0; round < settings.rounds; ++round) {
    RunCopy(tools::TimeMemcpy, kBlock * kBlockCount, one_copy);
    RETURN_IF_ERROR(RunPair(pair, kBlockCount, kBlock, by_table, &tools::BenchPair::RunBlocks));
  }
  report.Add(MakeRow("10,000 blocks of 4 KiB mapped", by_table, "one memcpy", one_copy, 0.7));
  return absl::OkStatus();
}

absl::Status MeasureUcx(const Settings& settings, const Nodes& nodes, UcxOver over,
                        Report& report) {
  const bool tcp = over == UcxOver::kTcp;
  ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_UCX));
  RawTcp raw(kLarge);
  Rates by_ucx, perftest, by_socket, small;
  Rates one_buffer;
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(double rate, MeasureUcxPerftest(UcxTransports(over), kLarge, 5));
    perftest.warm.push_back(rate);
    RETURN_IF_ERROR(RunPair(pair, 1, kLarge, by_ucx));
    if (!tcp) continue;
    ASSIGN_OR_RETURN(absl::Duration elapsed, raw.Run());
    by_socket.Add(by_socket.warm, kLarge, elapsed);
    RETURN_IF_ERROR(RunPair(pair, kSmallCount, kSmall, small));
    RETURN_IF_ERROR(RunPair(pair, 1, kSmallCount * kSmall, one_buffer));
  }
  const char* name = tcp ? "256 MiB ucx TCP" : "256 MiB ucx shared memory";
  report.Add(MakeRow(name, by_ucx, "ucx_perftest tag_bw", perftest, 0.9));
  if (tcp) {
    report.Add(MakeRow(name, by_ucx, "raw TCP socket", by_socket, 0.8));
    report.Add(MakeRow("1,000 x 64 KiB ucx TCP", small, "one buffer of as much", one_buffer, 0.9));
  }
  return absl::OkStatus();
}

}  // namespace ferry::bench
