// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/cases.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kLargeCount = 32;  // the stream of 8 GiB
constexpr uint64_t kWindow = 4;       // of the large ones; they share the bytes of one
constexpr absl::Duration kShared = absl::Seconds(2);
constexpr uint64_t kSharedCount = 8;  // between two looks at the clock
constexpr uint64_t kPending = 100'000;
constexpr int kIdleSessions = 1000;

// `count` of kLarge.
absl::StatusOr<absl::Duration> StreamLarge(tools::BenchPair& pair, uint64_t count) {
  return pair.Stream(count, kLarge, 1, kWindow);
}

// How long each 64 KiB takes while another session moves `count` large ones, in microseconds.
absl::Status BehindAStream(tools::BenchPair& small, tools::BenchPair& large, uint64_t count,
                           std::vector<double>& samples) {
  std::atomic<bool> streaming = true;
  absl::Status streamed;
  std::thread stream([&] {
    streamed = StreamLarge(large, count).status();
    streaming = false;
  });
  absl::Status status;
  while (streaming && status.ok()) {
    const auto took = small.Run(1, kSmall);
    status = took.status();
    if (took.ok() && streaming) samples.push_back(absl::ToDoubleMicroseconds(*took));
  }
  stream.join();
  return status.ok() ? streamed : status;
}

// What both moved until the time was over; the lesser part in percent.
absl::StatusOr<double> LesserShare(tools::BenchPair& one, tools::BenchPair& other) {
  tools::BenchPair* const pairs[] = {&one, &other};
  uint64_t moved[2] = {};
  absl::Status statuses[2];
  std::vector<std::thread> threads;
  const absl::Time end = absl::Now() + kShared;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      while (absl::Now() < end && statuses[i].ok()) {
        statuses[i] = StreamLarge(*pairs[i], kSharedCount).status();
        ++moved[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return 100.0 * static_cast<double>(std::min(moved[0], moved[1])) /
         static_cast<double>(moved[0] + moved[1]);
}

absl::StatusOr<absl::Duration> PostMany(tools::BenchPair& pair) {
  return pair.Stream(kRateCount, kRateBytes, kRateBatch, kRateWindow);
}

absl::StatusOr<double> PostingRate(tools::BenchPair& pair) {
  ASSIGN_OR_RETURN(absl::Duration elapsed, PostMany(pair));
  return kRateCount / absl::ToDoubleSeconds(elapsed);
}

}  // namespace

absl::Status MeasureSharing(tools::BenchPair& small, tools::BenchPair& one, tools::BenchPair& other,
                            int rounds, const SharingRows& rows, Report& report) {
  RETURN_IF_ERROR(small.MakeArenas(kSmall).status());
  RETURN_IF_ERROR(one.MakeArenas(kLarge).status());
  RETURN_IF_ERROR(other.MakeArenas(kLarge).status());
  RETURN_IF_ERROR(StreamLarge(one, kWindow).status());
  RETURN_IF_ERROR(StreamLarge(other, kWindow).status());
  std::vector<double> behind, shares;
  for (int round = 0; round < rounds; ++round) {
    RETURN_IF_ERROR(BehindAStream(small, one, rows.stream, behind));
    ASSIGN_OR_RETURN(double share, LesserShare(one, other));
    shares.push_back(share);
  }
  RETURN_IF_ERROR(small.Check([&] { return small.Run(1, kSmall); }).status());
  for (tools::BenchPair* pair : {&one, &other}) {
    RETURN_IF_ERROR(pair->Check([&] { return StreamLarge(*pair, kWindow); }).status());
  }
  Row row;
  row.name = rows.behind;
  row.unit = "us";
  row.warm = tools::Quantile(std::move(behind), 0.99);
  row.at_most = true;
  row.target = rows.behind_us;
  report.Add(row);
  row.name = rows.share;
  row.unit = "%";
  row.warm = tools::Median(shares);
  row.at_most = false;
  row.target = 45;
  report.Add(row);
  return absl::OkStatus();
}

absl::Status MeasureFairness(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(tools::BenchPair small, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_ANY));
  ASSIGN_OR_RETURN(tools::BenchPair one, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_ANY));
  ASSIGN_OR_RETURN(tools::BenchPair other, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_ANY));
  return MeasureSharing(small, one, other, settings.rounds,
                        {kLargeCount, "64 KiB behind 8 GiB of another session, p99", 5000,
                         "two equal sessions, the lesser's share"},
                        report);
}

absl::Status MeasureCrowd(const Settings& settings, const Nodes& empty, const Nodes& crowded,
                          Report& report) {
  ASSIGN_OR_RETURN(tools::BenchPair alone, OpenPair(settings, empty, 0, 1, FERRY_ROUTE_ANY));
  ASSIGN_OR_RETURN(tools::BenchPair among, OpenPair(settings, crowded, 0, 1, FERRY_ROUTE_ANY));
  ASSIGN_OR_RETURN(tools::BenchPair pending, OpenPair(settings, crowded, 0, 1, FERRY_ROUTE_ANY));
  for (tools::BenchPair* pair : {&alone, &among, &pending}) {
    RETURN_IF_ERROR(pair->MakeArenas(kRateBytes * kRateBatch * kRateWindow).status());
  }
  RETURN_IF_ERROR(pending.Park(kPending, kRateBytes));
  std::vector<tools::SessionPtr> sessions;
  for (int i = 0; i < kIdleSessions; ++i) {
    tools::SessionOptions options;
    options.client_dir = crowded.ClientDir(1);
    options.name = absl::StrCat("idle-", i);
    ASSIGN_OR_RETURN(tools::SessionPtr session, tools::OpenSession(options));
    sessions.push_back(std::move(session));
  }
  std::vector<double> without, with;
  for (tools::BenchPair* pair : {&alone, &among}) RETURN_IF_ERROR(PostingRate(*pair).status());
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(double empty_rate, PostingRate(alone));
    without.push_back(empty_rate);
    ASSIGN_OR_RETURN(double rate, PostingRate(among));
    with.push_back(rate);
  }
  for (tools::BenchPair* pair : {&alone, &among}) {
    RETURN_IF_ERROR(pair->Check([&] { return PostMany(*pair); }).status());
  }
  Row row;
  row.name = "4 KiB beside 100,000 pending, 1,000 sessions";
  row.unit = "transfers/s";
  row.warm = tools::Median(with);
  row.peer = "an empty daemon";
  row.peer_warm = tools::Median(without);
  row.target = 0.9;
  report.Add(row);

  ASSIGN_OR_RETURN(absl::Duration before, CpuTime(crowded.pid(1)));
  const absl::Duration watched = absl::Seconds(5);
  absl::SleepFor(watched);
  ASSIGN_OR_RETURN(absl::Duration after, CpuTime(crowded.pid(1)));
  Row idle;
  idle.name = "idle daemon, 100,000 pending, 1,000 sessions";
  idle.unit = "% of a core";
  idle.warm = 100 * absl::FDivDuration(after - before, watched);
  idle.at_most = true;
  idle.target = 2;
  report.Add(idle);
  return absl::OkStatus();
}

}  // namespace ferry::bench
