// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <vector>

#include "base/status.h"
#include "bench/cases.h"
#include "bench/network_peers.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kTcpCount = 1000;
constexpr uint64_t kTogether = kTcpCount * kSmall;
constexpr int kRuns = 4;     // of what takes a tenth of a second, a round
constexpr int kPings = 500;  // a round

struct Large {
  std::vector<double> rates;        // GB/s
  std::vector<double> cpu_seconds;  // a GB, at both daemons
};

absl::Status RunLarge(const Nodes& nodes, tools::BenchPair& pair, Large& large) {
  ASSIGN_OR_RETURN(const absl::Duration before, nodes.Cpu());
  for (int i = 0; i < kRuns; ++i) {
    ASSIGN_OR_RETURN(const absl::Duration elapsed, pair.Run(1, kLarge));
    large.rates.push_back(tools::GigabytesPerSecond(kLarge, elapsed));
  }
  ASSIGN_OR_RETURN(const absl::Duration after, nodes.Cpu());
  large.cpu_seconds.push_back(absl::ToDoubleSeconds(after - before) / (kRuns * kLarge / 1e9));
  return absl::OkStatus();
}

using RateOf = absl::StatusOr<absl::Duration>;

absl::Status AddRate(std::vector<double>& rates, uint64_t bytes, const RateOf& elapsed) {
  RETURN_IF_ERROR(elapsed.status());
  rates.push_back(tools::GigabytesPerSecond(bytes, *elapsed));
  return absl::OkStatus();
}

void AddRow(Report& report, const char* name, const char* unit, const std::vector<double>& ours,
            const char* peer, const std::vector<double>& theirs, std::optional<double> target,
            bool at_most = false) {
  Row row;
  row.name = name;
  row.unit = unit;
  row.warm = tools::Median(ours);
  row.peer = peer;
  row.peer_warm = tools::Median(theirs);
  row.target = target;
  row.at_most = at_most;
  report.Add(row);
}

}  // namespace

absl::Status MeasureTcp(const Settings& settings, const Nodes& nodes, Report& report) {
  const auto open = [&](int route) { return OpenPair(settings, nodes, 0, 1, route); };
  ASSIGN_OR_RETURN(tools::BenchPair by_tcp, open(FERRY_ROUTE_TCP));
  ASSIGN_OR_RETURN(tools::BenchPair by_ucx, open(FERRY_ROUTE_UCX));
  ASSIGN_OR_RETURN(tools::BenchPair many, open(FERRY_ROUTE_TCP));
  ASSIGN_OR_RETURN(tools::BenchPair ping, open(FERRY_ROUTE_TCP));
  RETURN_IF_ERROR(by_tcp.MakeArenas(kLarge).status());
  RETURN_IF_ERROR(by_ucx.MakeArenas(kLarge).status());
  RETURN_IF_ERROR(many.MakeArenas(kTogether).status());
  RETURN_IF_ERROR(many.Prepare(kTcpCount, kSmall));
  RETURN_IF_ERROR(ping.MakeArenas(2 * 8).status());
  RETURN_IF_ERROR(ping.PreparePing(8));
  RawTcp raw(kLarge);
  Large tcp, ucx;
  std::vector<double> socket, one_buffer, posted, prepared, pings, bare, relayed;
  for (int round = 0; round < settings.rounds; ++round) {
    RETURN_IF_ERROR(RunLarge(nodes, by_tcp, tcp));
    RETURN_IF_ERROR(AddRate(socket, kLarge, raw.Run()));
    RETURN_IF_ERROR(RunLarge(nodes, by_ucx, ucx));
    for (int i = 0; i < kRuns; ++i) {
      RETURN_IF_ERROR(AddRate(one_buffer, kTogether, by_tcp.Run(1, kTogether)));
      RETURN_IF_ERROR(AddRate(posted, kTogether, by_tcp.Run(kTcpCount, kSmall)));
      RETURN_IF_ERROR(AddRate(prepared, kTogether, many.Fire()));
    }
    ASSIGN_OR_RETURN(std::vector<absl::Duration> trips, ping.Ping(kPings));
    pings.push_back(absl::ToDoubleMicroseconds(tools::Median(std::move(trips))));
    ASSIGN_OR_RETURN(const absl::Duration half, BareTcpHalfRoundTrip(kPings));
    bare.push_back(absl::ToDoubleMicroseconds(half));
    ASSIGN_OR_RETURN(const absl::Duration through, RelayedTcpHalfRoundTrip(kPings));
    relayed.push_back(absl::ToDoubleMicroseconds(through));
  }
  for (tools::BenchPair* pair : {&by_tcp, &by_ucx}) {
    RETURN_IF_ERROR(pair->Check([&] { return pair->Run(1, kLarge); }).status());
  }
  RETURN_IF_ERROR(by_tcp.Check([&] { return by_tcp.Run(kTcpCount, kSmall); }).status());
  RETURN_IF_ERROR(many.Check([&] { return many.Fire(); }).status());
  RETURN_IF_ERROR(ping.Check([&] { return ping.PingOnce(); }).status());
  AddRow(report, "256 MiB tcp", "GB/s", tcp.rates, "ucx over TCP", ucx.rates, 1.0);
  AddRow(report, "256 MiB tcp", "GB/s", tcp.rates, "raw TCP socket", socket, 1.2);
  AddRow(report, "both daemons' CPU by tcp", "s/GB", tcp.cpu_seconds, "ucx over TCP",
         ucx.cpu_seconds, 0.8, /*at_most=*/true);
  AddRow(report, "1,000 x 64 KiB tcp, posted", "GB/s", posted, "one buffer of as much", one_buffer,
         0.9);
  AddRow(report, "1,000 x 64 KiB tcp, prepared", "GB/s", prepared, "one buffer of as much",
         one_buffer, 0.9);
  AddRow(report, "8 B tcp, prepared", "us", pings, "half of a bare TCP round trip", bare, 1.5,
         /*at_most=*/true);
  AddRow(report, "8 B tcp, prepared", "us", pings, "the same through threads that only pass on",
         relayed, std::nullopt);
  return absl::OkStatus();
}

}  // namespace ferry::bench
