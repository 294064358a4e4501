// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include <dirent.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"

namespace ferry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr Reason kReasons[] = {
#define FERRY_REASON_VALUE(name, text) Reason::name,
    FERRY_REASONS(FERRY_REASON_VALUE)
#undef FERRY_REASON_VALUE
};
constexpr const char* kDirections[] = {"send", "recv"};
constexpr const char* kResults[] = {"ok", "error", "timeout", "aborted", "cancelled"};

// The result's index in kResults.
size_t ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kDeadlineExceeded:
      return 2;
    case absl::StatusCode::kAborted:
      return 3;
    case absl::StatusCode::kCancelled:
      return 4;
    default:
      return 1;
  }
}

std::string RouteLabel(int route) {
  return route == 0 ? "none" : std::string(RouteName(static_cast<Route>(route)));
}

MetricFamily Family(std::string name, std::string help, MetricType type) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

// Start of the process, in seconds since the epoch. Asked only once: after a change of the clock it
// would be another time, as if the process had been restarted.
double StartTime() {
  static const double start = [] {
    // After the name, which may have spaces and parentheses in it, the twentieth field is the start
    // time.
    std::string stat;
    std::getline(std::ifstream("/proc/self/stat"), stat);
    const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')') + 1), ' ');
    double ticks = 0;
    timespec boot{};
    clock_gettime(CLOCK_BOOTTIME, &boot);
    const double up = static_cast<double>(boot.tv_sec) + 1e-9 * static_cast<double>(boot.tv_nsec);
    const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    if (fields.size() <= 20 || !absl::SimpleAtod(fields[20], &ticks)) return now;
    return now - up + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }();
  return start;
}

size_t OpenDescriptors() {
  size_t count = 0;
  if (DIR* dir = opendir("/proc/self/fd")) {
    while (readdir(dir) != nullptr) ++count;
    closedir(dir);
  }
  return count < 3 ? 0 : count - 3;  // without ".", ".." and the directory itself
}

}  // namespace

void HistogramCounts::Observe(double value, uint64_t times) {
  const size_t bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[bucket] += times;
  sum_ += value * static_cast<double>(times);
}

ClientMetric::Histogram HistogramCounts::Export() const {
  ClientMetric::Histogram out;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    cumulative += counts_[i];
    ClientMetric::Bucket bucket;
    bucket.cumulative_count = cumulative;
    bucket.upper_bound = i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity();
    out.bucket.push_back(bucket);
  }
  out.sample_count = cumulative;
  out.sample_sum = sum_;
  return out;
}

TransferMetrics::TransferMetrics()
    : duration_(kRoutes, HistogramCounts({1e-5,   2.5e-5, 5e-5, 1e-4,   2.5e-4, 5e-4, 1e-3,
                                          2.5e-3, 5e-3,   1e-2, 2.5e-2, 5e-2,   0.1,  0.25,
                                          0.5,    1,      2.5,  5,      10,     60})),
      size_({4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456,
             1073741824, 4294967296}) {
  for (const Reason reason : kReasons) {
    rejected_[std::string(ReasonName(reason))] = 0;
    for (int route = 0; route < kRoutes; ++route) failures_[{reason, route}] = 0;
  }
  for (int from = 1; from < kRoutes; ++from) {
    for (int to = 0; to < kRoutes; ++to) {
      if (to != from) fallbacks_[absl::StrCat(RouteLabel(from), ",", RouteLabel(to))] = 0;
    }
  }
}

void TransferMetrics::OnEnded(const Ended& ended, absl::Time now) {
  home_.Check();
  const int route = static_cast<int>(ended.route);
  PerDirection& counts = by_route_[route][ended.side == Side::kSend ? 0 : 1];
  counts.results[ResultOf(ended.status)] += ended.count;
  if (ended.status.ok()) {
    const uint64_t bytes = ended.bytes * ended.count;
    ok_ += ended.count;
    counts.bytes += bytes;
    if (ended.side == Side::kReceive) bytes_received_ += bytes;
    size_.Observe(static_cast<double>(ended.bytes), ended.count);
  } else {
    failed_ += ended.count;
    failures_[{ReasonOf(ended.status), route}] += ended.count;
  }
  duration_[route].Observe(absl::ToDoubleSeconds(now - ended.posted), ended.count);
}

void TransferMetrics::OnFallback(const Fallback& fallback) {
  home_.Check();
  ++fallbacks_[absl::StrCat(RouteLabel(static_cast<int>(fallback.from)), ",",
                            RouteLabel(static_cast<int>(fallback.to)))];
}

void TransferMetrics::OnRejected(const absl::Status& status) {
  home_.Check();
  ++rejected_[std::string(ReasonName(ReasonOf(status)))];
}

void TransferMetrics::Export(std::vector<MetricFamily>& families) const {
  home_.Check();
  MetricFamily total = Family("ferry_transfers_total", "Transfers that ended", MetricType::Counter);
  MetricFamily bytes = Family("ferry_transfer_bytes_total", "Bytes of transfers that ended well",
                              MetricType::Counter);
  MetricFamily duration =
      Family("ferry_transfer_duration_seconds", "From posting to the end", MetricType::Histogram);
  for (int route = 0; route < kRoutes; ++route) {
    for (int direction = 0; direction < 2; ++direction) {
      const PerDirection& counts = by_route_[route][direction];
      for (size_t result = 0; result < std::size(kResults); ++result) {
        AddSample(total,
                  {{"route", RouteLabel(route)},
                   {"direction", kDirections[direction]},
                   {"result", kResults[result]}},
                  static_cast<double>(counts.results[result]));
      }
      AddSample(bytes, {{"route", RouteLabel(route)}, {"direction", kDirections[direction]}},
                static_cast<double>(counts.bytes));
    }
    ClientMetric metric;
    metric.label = {{"route", RouteLabel(route)}};
    metric.histogram = duration_[route].Export();
    duration.metric.push_back(std::move(metric));
  }
  families.push_back(std::move(total));
  families.push_back(std::move(bytes));
  families.push_back(std::move(duration));
  MetricFamily failures =
      Family("ferry_transfer_failures_total",
             "Transfers that failed, by reason and the route launched last", MetricType::Counter);
  for (const auto& [key, count] : failures_) {
    AddSample(failures,
              {{"reason", std::string(ReasonName(key.first))}, {"route", RouteLabel(key.second)}},
              static_cast<double>(count));
  }
  families.push_back(std::move(failures));
  MetricFamily size = Family("ferry_transfer_size_bytes", "Sizes of transfers that ended well",
                             MetricType::Histogram);
  size.metric.emplace_back().histogram = size_.Export();
  families.push_back(std::move(size));
  MetricFamily fallbacks =
      Family("ferry_fallbacks_total",
             "Launches that a route could not take, by the route tried next", MetricType::Counter);
  for (const auto& [pair, count] : fallbacks_) {
    const std::vector<std::string> names = absl::StrSplit(pair, ',');
    AddSample(fallbacks, {{"from", names[0]}, {"to", names[1]}}, static_cast<double>(count));
  }
  families.push_back(std::move(fallbacks));
  MetricFamily rejected =
      Family("ferry_requests_rejected_total", "Batches refused at posting", MetricType::Counter);
  for (const auto& [reason, count] : rejected_) {
    AddSample(rejected, {{"reason", reason}}, static_cast<double>(count));
  }
  families.push_back(std::move(rejected));
}

MetricFamily Gauges(std::string name, std::string help) {
  return Family(std::move(name), std::move(help), MetricType::Gauge);
}

MetricFamily Counters(std::string name, std::string help) {
  return Family(std::move(name), std::move(help), MetricType::Counter);
}

MetricFamily GaugeFamily(std::string name, std::string help, double value) {
  MetricFamily family = Family(std::move(name), std::move(help), MetricType::Gauge);
  AddSample(family, {}, value);
  return family;
}

MetricFamily CounterFamily(std::string name, std::string help, double value) {
  MetricFamily family = Family(std::move(name), std::move(help), MetricType::Counter);
  AddSample(family, {}, value);
  return family;
}

void AddSample(MetricFamily& family, std::vector<ClientMetric::Label> labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

void ExportProcess(std::vector<MetricFamily>& families) {
  MetricFamily build = Family("ferry_build_info", "Always 1", MetricType::Gauge);
  AddSample(build, {{"version", Version()}, {"compiler", __VERSION__}}, 1);
  families.push_back(std::move(build));
  MetricFamily logs = Family("ferry_log_messages_total", "Log lines written", MetricType::Counter);
  for (const char* level : {"trace", "debug", "info", "warning", "error", "critical"}) {
    AddSample(logs, {{"level", level}},
              static_cast<double>(LogMessages(static_cast<int>(spdlog::level::from_str(level)))));
  }
  families.push_back(std::move(logs));
  MetricFamily dropped = Family("ferry_log_dropped_total",
                                "Log lines that stderr did not take at once", MetricType::Counter);
  AddSample(dropped, {}, static_cast<double>(LogLinesDropped()));
  families.push_back(std::move(dropped));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  families.push_back(CounterFamily("process_cpu_seconds_total", "CPU time, user and system",
                                   seconds(usage.ru_utime) + seconds(usage.ru_stime)));
  families.push_back(GaugeFamily("process_start_time_seconds",
                                 "When the process began, since the epoch", StartTime()));
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  families.push_back(
      GaugeFamily("process_resident_memory_bytes", "Resident memory, shared arenas included",
                  static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE))));
  families.push_back(GaugeFamily("process_open_fds", "Open file descriptors",
                                 static_cast<double>(OpenDescriptors())));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  families.push_back(GaugeFamily("process_max_fds", "Limit of open file descriptors",
                                 static_cast<double>(limit.rlim_cur)));
}

std::string MetricsText(const std::vector<MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace ferry
