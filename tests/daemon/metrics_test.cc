// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kPosted = absl::UnixEpoch() + absl::Hours(1);

Ended SomeEnding(Route route, Side side, uint64_t bytes,
                 absl::StatusCode code = absl::StatusCode::kOk) {
  Ended ended;
  ended.route = route;
  ended.side = side;
  ended.bytes = bytes;
  ended.status = absl::Status(code, "x");
  ended.posted = kPosted;
  return ended;
}

std::string TextOf(const TransferMetrics& metrics) {
  std::vector<prometheus::MetricFamily> families;
  metrics.Export(families);
  return MetricsText(families);
}

TEST(HistogramCounts, ABucketCountsWhatIsNotMoreThanItsBound) {
  HistogramCounts counts({1, 10, 100});
  for (const double value : {0.0, 1.0, 1.5, 10.0, 100.0, 100.5, 1e9}) counts.Observe(value);
  const prometheus::ClientMetric::Histogram histogram = counts.Export();
  ASSERT_EQ(histogram.bucket.size(), 4u);
  EXPECT_EQ(histogram.bucket[0].cumulative_count, 2u);
  EXPECT_EQ(histogram.bucket[1].cumulative_count, 4u);
  EXPECT_EQ(histogram.bucket[2].cumulative_count, 5u);
  EXPECT_EQ(histogram.bucket[3].cumulative_count, 7u);
  EXPECT_EQ(histogram.bucket[1].upper_bound, 10);
  EXPECT_TRUE(std::isinf(histogram.bucket[3].upper_bound));
  EXPECT_EQ(histogram.sample_count, 7u);
  EXPECT_DOUBLE_EQ(histogram.sample_sum, 1e9 + 213);
}

TEST(TransferMetrics, FailuresAreCountedByReasonAndRoute) {
  TransferMetrics metrics;
  Ended ended;
  ended.route = Route::kMapped;
  ended.status = Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "gone");
  for (int i = 0; i < 3; ++i) metrics.OnEnded(ended, absl::Now());
  ended.route = Route::kUnspecified;
  metrics.OnEnded(ended, absl::Now());
  ended.status = absl::OkStatus();
  metrics.OnEnded(ended, absl::Now());
  const std::string text = TextOf(metrics);
  EXPECT_THAT(
      text,
      HasSubstr("ferry_transfer_failures_total{reason=\"PEER_UNREACHABLE\",route=\"mapped\"} 3\n"));
  EXPECT_THAT(
      text,
      HasSubstr("ferry_transfer_failures_total{reason=\"PEER_UNREACHABLE\",route=\"none\"} 1\n"));
}

TEST(TransferMetrics, EveryLabelSetIsThereBeforeAnythingHappened) {
  const std::string text = TextOf(TransferMetrics());
  for (const char* route : {"none", "local", "mapped", "ucx", "nccl"}) {
    for (const char* direction : {"send", "recv"}) {
      for (const char* result : {"ok", "error", "timeout", "aborted", "cancelled"}) {
        EXPECT_THAT(
            text, HasSubstr(absl::StrCat("ferry_transfers_total{route=\"", route, "\",direction=\"",
                                         direction, "\",result=\"", result, "\"} 0\n")));
      }
      EXPECT_THAT(text, HasSubstr(absl::StrCat("ferry_transfer_bytes_total{route=\"", route,
                                               "\",direction=\"", direction, "\"} 0\n")));
    }
    EXPECT_THAT(text, HasSubstr(absl::StrCat("ferry_transfer_duration_seconds_count{route=\"",
                                             route, "\"} 0\n")));
  }
  EXPECT_THAT(text, HasSubstr("ferry_transfer_size_bytes_count 0\n"));
  // A counter that appears with its first event has no increase() that would show it.
  for (const char* reason : {"INTERNAL", "PEER_UNREACHABLE", "CONFIG_INVALID"}) {
    for (const char* route : {"none", "local", "mapped", "ucx", "nccl", "tcp"}) {
      EXPECT_THAT(text, HasSubstr(absl::StrCat("ferry_transfer_failures_total{reason=\"", reason,
                                               "\",route=\"", route, "\"} 0\n")));
    }
    EXPECT_THAT(text, HasSubstr(absl::StrCat("ferry_requests_rejected_total{reason=\"", reason,
                                             "\"} 0\n")));
  }
  EXPECT_THAT(text, HasSubstr("ferry_fallbacks_total{from=\"tcp\",to=\"none\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("ferry_fallbacks_total{from=\"nccl\",to=\"tcp\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("from=\"tcp\",to=\"tcp\"")));
}

TEST(TransferMetrics, LostLinksAreCountedByNode) {
  TransferMetrics metrics;
  metrics.OnLinkLost("node-b");
  metrics.OnLinkLost("node-b");
  EXPECT_EQ(metrics.links_lost("node-b"), 2u);
  EXPECT_EQ(metrics.links_lost("node-c"), 0u);
}

TEST(TransferMetrics, EndingsAreCountedByRouteDirectionAndResult) {
  TransferMetrics metrics;
  const absl::Time now = kPosted + absl::Milliseconds(20);
  metrics.OnEnded(SomeEnding(Route::kLocal, Side::kReceive, 5000), now);
  metrics.OnEnded(SomeEnding(Route::kLocal, Side::kSend, 5000), now);
  metrics.OnEnded(SomeEnding(Route::kUcx, Side::kReceive, 7, absl::StatusCode::kUnavailable), now);
  metrics.OnEnded(SomeEnding(Route::kUcx, Side::kReceive, 7, absl::StatusCode::kAborted), now);
  metrics.OnEnded(
      SomeEnding(Route::kUnspecified, Side::kSend, 7, absl::StatusCode::kDeadlineExceeded), now);
  metrics.OnEnded(SomeEnding(Route::kUnspecified, Side::kSend, 7, absl::StatusCode::kCancelled),
                  now);
  EXPECT_EQ(metrics.ok(), 2u);
  EXPECT_EQ(metrics.failed(), 4u);
  EXPECT_EQ(metrics.bytes_received(), 5000u);
  const std::string text = TextOf(metrics);
  for (const char* line :
       {"ferry_transfers_total{route=\"local\",direction=\"recv\",result=\"ok\"} 1\n",
        "ferry_transfers_total{route=\"local\",direction=\"send\",result=\"ok\"} 1\n",
        "ferry_transfers_total{route=\"ucx\",direction=\"recv\",result=\"error\"} 1\n",
        "ferry_transfers_total{route=\"ucx\",direction=\"recv\",result=\"aborted\"} 1\n",
        "ferry_transfers_total{route=\"none\",direction=\"send\",result=\"timeout\"} 1\n",
        "ferry_transfers_total{route=\"none\",direction=\"send\",result=\"cancelled\"} 1\n",
        "ferry_transfer_bytes_total{route=\"local\",direction=\"recv\"} 5000\n",
        "ferry_transfer_bytes_total{route=\"ucx\",direction=\"recv\"} 0\n",
        "ferry_transfer_duration_seconds_bucket{route=\"local\",le=\"0.01\"} 0\n",
        "ferry_transfer_duration_seconds_bucket{route=\"local\",le=\"0.025\"} 2\n",
        "ferry_transfer_duration_seconds_bucket{route=\"local\",le=\"+Inf\"} 2\n",
        "ferry_transfer_size_bytes_bucket{le=\"4096\"} 0\n",
        "ferry_transfer_size_bytes_bucket{le=\"16384\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(TransferMetrics, FallbacksAndRefusalsNameWhatHappened) {
  TransferMetrics metrics;
  metrics.OnFallback({TransferId(1), Route::kMapped, Route::kUcx, "no page"});
  metrics.OnFallback({TransferId(2), Route::kMapped, Route::kUcx, "no page"});
  metrics.OnFallback({TransferId(3), Route::kUcx, Route::kUnspecified, "no link"});
  metrics.OnRejected(Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull, "full"));
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("ferry_fallbacks_total{from=\"mapped\",to=\"ucx\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("ferry_fallbacks_total{from=\"ucx\",to=\"none\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("ferry_requests_rejected_total{reason=\"QUEUE_FULL\"} 1\n"));
}

TEST(Metrics, OfTheProcessAreThoseOfEveryPrometheusClient) {
  std::vector<prometheus::MetricFamily> families;
  ExportProcess(families);
  const std::string text = MetricsText(families);
  EXPECT_THAT(text, HasSubstr(absl::StrCat("ferry_build_info{version=\"", FERRY_VERSION, "\"")));
  for (const char* level : {"trace", "debug", "info", "warning", "error", "critical"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("ferry_log_messages_total{level=\"", level, "\"} ")));
  }
  for (const char* name :
       {"process_start_time_seconds ", "process_cpu_seconds_total ",
        "process_resident_memory_bytes ", "process_open_fds ", "process_max_fds "}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", name)));
    EXPECT_THAT(text, Not(HasSubstr(absl::StrCat("\n", name, "0\n")))) << name;
  }
}

TEST(Metrics, TheStartOfTheProcessIsATimeThatStays) {
  const auto start = [] {
    std::vector<prometheus::MetricFamily> families;
    ExportProcess(families);
    for (const prometheus::MetricFamily& family : families) {
      if (family.name == "process_start_time_seconds") return family.metric[0].gauge.value;
    }
    return -1.0;
  };
  const double first = start();
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(first, now + 1);
  EXPECT_GT(first, now - 3600 * 24) << "of this process, not of the host";
  EXPECT_EQ(start(), first);
}

TEST(Metrics, OpenDescriptorsAreCountedOneByOne) {
  const auto open_fds = [] {
    std::vector<prometheus::MetricFamily> families;
    ExportProcess(families);
    for (const prometheus::MetricFamily& family : families) {
      if (family.name == "process_open_fds") return family.metric[0].gauge.value;
    }
    return -1.0;
  };
  const double before = open_fds();
  const UniqueFd one = testing::SealedMemfd(1), two = testing::SealedMemfd(1);
  EXPECT_EQ(open_fds(), before + 2);
}

TEST(Metrics, EveryFamilyHasHelpAndTypeAndEveryOtherLineIsASample) {
  TransferMetrics metrics;
  metrics.OnEnded(SomeEnding(Route::kLocal, Side::kSend, 1), kPosted);
  metrics.OnFallback({TransferId(1), Route::kMapped, Route::kUcx, ""});
  std::vector<prometheus::MetricFamily> families;
  metrics.Export(families);
  ExportProcess(families);
  const std::regex sample(R"([a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? ([0-9.e+-]+|\+Inf))");
  std::set<std::string> helps, types;
  for (const absl::string_view line :
       absl::StrSplit(MetricsText(families), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] != "#") {
      EXPECT_TRUE(std::regex_match(std::string(line), sample)) << std::string(line);
      continue;
    }
    ASSERT_GE(words.size(), 4u) << std::string(line);
    EXPECT_TRUE((words[1] == "HELP" ? helps : types).insert(words[2]).second) << std::string(line);
  }
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : families) names.insert(family.name);
  EXPECT_EQ(helps, names);
  EXPECT_EQ(types, names);
}

}  // namespace
}  // namespace ferry
