// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/cases.h"
#include "bench/echo.h"
#include "bench/futex_echo.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kTiny = 8;
constexpr uint64_t kPosted = 10'000;
constexpr int kFewSessions = 100;

absl::StatusOr<double> TinyTransfers(tools::BenchPair& pair) {
  return MedianMicroseconds([&] { return pair.Run(1, kTiny); });
}

absl::Status CheckTiny(tools::BenchPair& pair) {
  return pair.Check([&] { return pair.Run(1, kTiny); }).status();
}

absl::StatusOr<double> MedianTrip(FutexEcho& echo) {
  return MedianMicroseconds([&]() -> absl::StatusOr<absl::Duration> { return echo.RoundTrip(); });
}

// 8 bytes, in microseconds, against futex words: a pair, through a third process, on two cores.
void AddPrepared(double local, double mapped, double futex, double third, double apart,
                 Report& report) {
  Row row;
  row.name = "8 B prepared, local";
  row.unit = "us";
  row.warm = local;
  row.peer = "futex-word round trip";
  row.peer_warm = futex;
  row.at_most = true;
  row.target = 1.5;
  report.Add(row);
  Row limit = row;
  limit.target.reset();
  limit.peer = "futex words, one way, through a third process";
  limit.peer_warm = third;
  report.Add(limit);
  limit.peer = "futex-word round trip between two cores";
  limit.peer_warm = apart;
  report.Add(limit);
  row.name = "8 B prepared, mapped";
  row.warm = mapped;
  row.target = 2.5;
  report.Add(row);
}

}  // namespace

absl::Status MeasureLatency(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(EchoClient echo, EchoClient::Start(settings.self));
  ASSIGN_OR_RETURN(FutexEcho futex, FutexEcho::Start(settings.self, FutexRoad::kTwoCores));
  ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_ANY));
  RETURN_IF_ERROR(pair.MakeArenas(4096).status());
  ASSIGN_OR_RETURN(absl::Duration cold, pair.Run(1, kTiny));
  std::vector<double> calls, trips, posts;
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(double call, MedianMicroseconds([&] { return echo.SmallCall(); }));
    ASSIGN_OR_RETURN(double post, TinyTransfers(pair));
    calls.push_back(call);
    posts.push_back(post);
    ASSIGN_OR_RETURN(double trip, MedianTrip(futex));
    trips.push_back(trip);
  }
  RETURN_IF_ERROR(CheckTiny(pair));
  Row row;
  row.name = "8 B, posted";
  row.unit = "us";
  row.cold = absl::ToDoubleMicroseconds(cold);
  row.warm = tools::Median(posts);
  row.peer = "gRPC unary round trip";
  row.peer_warm = tools::Median(calls);
  row.at_most = true;
  row.target = 0.9;
  report.Add(row);
  row.peer = "futex-word round trip between two cores";
  row.peer_warm = tools::Median(trips);
  row.target = 1.15;
  report.Add(row);
  return absl::OkStatus();
}

absl::Status MeasurePrepared(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(FutexEcho futex, FutexEcho::Start(settings.self, FutexRoad::kPair));
  ASSIGN_OR_RETURN(FutexEcho apart, FutexEcho::Start(settings.self, FutexRoad::kTwoCores));
  ASSIGN_OR_RETURN(FutexEcho third, FutexEcho::Start(settings.self, FutexRoad::kThroughThird));
  ASSIGN_OR_RETURN(tools::BenchPair local, OpenPair(settings, nodes, 0, 0, FERRY_ROUTE_LOCAL));
  ASSIGN_OR_RETURN(tools::BenchPair mapped, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_MAPPED));
  ASSIGN_OR_RETURN(tools::BenchPair posted, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_MAPPED));
  ASSIGN_OR_RETURN(tools::BenchPair many, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_MAPPED));
  for (tools::BenchPair* pair : {&local, &mapped}) {
    RETURN_IF_ERROR(pair->MakeArenas(4096).status());
    RETURN_IF_ERROR(pair->PreparePing(kTiny));
  }
  RETURN_IF_ERROR(posted.MakeArenas(kRateBytes * kRateBatch * kRateWindow).status());
  RETURN_IF_ERROR(many.MakeArenas(kRateBytes * kRateBatch).status());
  RETURN_IF_ERROR(many.Prepare(kRateBatch, kRateBytes));
  constexpr uint64_t kFirings = 100;
  const auto per_second = [](absl::Duration elapsed) {
    return static_cast<double>(kFirings * kRateBatch) / absl::ToDoubleSeconds(elapsed);
  };
  const auto post = [&] {
    return posted.Stream(kFirings * kRateBatch, kRateBytes, kRateBatch, kRateWindow);
  };
  const auto fire = [&] { return many.FireMany(kFirings); };
  std::vector<double> futexes, aparts, thirds, locals, mappeds, posts, firings;
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(double futex_time, MedianTrip(futex));
    ASSIGN_OR_RETURN(double apart_time, MedianTrip(apart));
    ASSIGN_OR_RETURN(double third_time, MedianTrip(third));
    ASSIGN_OR_RETURN(std::vector<absl::Duration> local_trips, local.Ping(kCallsPerRound));
    ASSIGN_OR_RETURN(std::vector<absl::Duration> mapped_trips, mapped.Ping(kCallsPerRound));
    futexes.push_back(futex_time);
    aparts.push_back(apart_time);
    thirds.push_back(third_time / 2);
    locals.push_back(absl::ToDoubleMicroseconds(tools::Median(std::move(local_trips))));
    mappeds.push_back(absl::ToDoubleMicroseconds(tools::Median(std::move(mapped_trips))));
    ASSIGN_OR_RETURN(absl::Duration post_time, post());
    ASSIGN_OR_RETURN(absl::Duration fire_time, fire());
    posts.push_back(per_second(post_time));
    firings.push_back(per_second(fire_time));
  }
  for (tools::BenchPair* pair : {&local, &mapped}) {
    RETURN_IF_ERROR(pair->Check([&] { return pair->PingOnce(); }).status());
  }
  RETURN_IF_ERROR(posted.Check(post).status());
  RETURN_IF_ERROR(many.Check(fire).status());
  AddPrepared(tools::Median(locals), tools::Median(mappeds), tools::Median(futexes),
              tools::Median(thirds), tools::Median(aparts), report);
  Row rate;
  rate.name = "1,024 x 4 KiB prepared, mapped";
  rate.unit = "transfers/s";
  rate.warm = tools::Median(firings);
  rate.peer = "the same, posted";
  rate.peer_warm = tools::Median(posts);
  rate.target = 2;
  report.Add(rate);
  return absl::OkStatus();
}

absl::Status MeasureRate(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(EchoClient echo, EchoClient::Start(settings.self));
  ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_ANY));
  const ferry::v1::CrossHostSendRequest batch = DescriptorBatch(kRateBatch, kRateBytes);
  const auto per_second = [](uint64_t count, absl::Duration elapsed) {
    return static_cast<double>(count) / absl::ToDoubleSeconds(elapsed);
  };
  ASSIGN_OR_RETURN(absl::Duration made, pair.MakeArenas(kRateBytes * kRateBatch * kRateWindow));
  const auto once = [&] { return pair.Stream(kRateCount, kRateBytes, kRateBatch, kRateWindow); };
  ASSIGN_OR_RETURN(absl::Duration first, once());
  std::vector<double> transfers, descriptors;
  for (int round = 0; round < settings.rounds; ++round) {
    absl::Duration all;
    const uint64_t calls = kRateCount / kRateBatch + 1;
    for (uint64_t i = 0; i < calls; ++i) {
      ASSIGN_OR_RETURN(absl::Duration one, echo.Descriptors(batch));
      all += one;
    }
    descriptors.push_back(per_second(calls * kRateBatch, all));
    ASSIGN_OR_RETURN(absl::Duration elapsed, once());
    transfers.push_back(per_second(kRateCount, elapsed));
  }
  RETURN_IF_ERROR(pair.Check(once).status());
  Row row;
  row.name = "100,000 x 4 KiB, batches of 1,024";
  row.unit = "transfers/s";
  row.cold = per_second(kRateCount, made + first);
  row.warm = tools::Median(transfers);
  row.target = 1'000'000;
  report.Add(row);
  row.peer = "echo RPC of the descriptors";
  row.peer_warm = tools::Median(descriptors);
  row.target = 0.4;
  report.Add(row);
  return absl::OkStatus();
}

absl::Status MeasurePosted(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_ANY));
  RETURN_IF_ERROR(pair.MakeArenas(1 << 20).status());
  std::vector<double> alone, beside;
  double bytes_each = 0;
  RETURN_IF_ERROR(TinyTransfers(pair).status());  // what grows once has grown
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(double without, TinyTransfers(pair));
    alone.push_back(without);
    ASSIGN_OR_RETURN(uint64_t before, ResidentBytes(nodes.pid(1)));
    RETURN_IF_ERROR(pair.Park(kPosted, kTiny));
    ASSIGN_OR_RETURN(uint64_t after, ResidentBytes(nodes.pid(1)));
    // Later rounds use what the first one left with the allocator.
    if (round == 0)
      bytes_each = (static_cast<double>(after) - static_cast<double>(before)) / kPosted;
    ASSIGN_OR_RETURN(double with, TinyTransfers(pair));
    beside.push_back(with);
    RETURN_IF_ERROR(pair.Unpark());
  }
  RETURN_IF_ERROR(CheckTiny(pair));
  Row row;
  row.name = "8 B beside 10,000 posted receives";
  row.unit = "us";
  row.warm = tools::Median(beside);
  row.peer = "8 B beside none";
  row.peer_warm = tools::Median(alone);
  row.at_most = true;
  row.target = 1.2;
  report.Add(row);

  Row memory;
  memory.name = "daemon's memory, a posted receive";
  memory.unit = "bytes";
  memory.warm = bytes_each;
  memory.at_most = true;
  memory.target = 2048;
  report.Add(memory);

  std::vector<tools::SessionPtr> sessions;
  ASSIGN_OR_RETURN(uint64_t before, ResidentBytes(nodes.pid(0)));
  for (int i = 0; i < kFewSessions; ++i) {
    tools::SessionOptions options;
    options.client_dir = nodes.ClientDir(0);
    options.name = absl::StrCat("idle-", i);
    ASSIGN_OR_RETURN(tools::SessionPtr session, tools::OpenSession(options));
    sessions.push_back(std::move(session));
  }
  ASSIGN_OR_RETURN(uint64_t after, ResidentBytes(nodes.pid(0)));
  memory.name = "daemon's memory, an idle session";
  memory.warm = (static_cast<double>(after) - static_cast<double>(before)) / kFewSessions;
  memory.target = 65536;
  report.Add(memory);

  ASSIGN_OR_RETURN(absl::Duration busy_before, CpuTime(nodes.pid(0)));
  const absl::Duration watched = absl::Seconds(5);
  absl::SleepFor(watched);
  ASSIGN_OR_RETURN(absl::Duration busy_after, CpuTime(nodes.pid(0)));
  Row idle;
  idle.name = "idle daemon with 100 sessions";
  idle.unit = "% of a core";
  idle.warm = 100 * absl::FDivDuration(busy_after - busy_before, watched);
  idle.at_most = true;
  idle.target = 1;
  report.Add(idle);
  return absl::OkStatus();
}

}  // namespace ferry::bench
