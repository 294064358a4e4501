// SPDX-License-Identifier: Apache-2.0
// What the daemon counts about transfers. Home: control; the text is made there on request, so
// counting is plain arithmetic. Names: docs/metrics.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/reason.h"
#include "transfer/engine.h"

namespace ferry {

// Prometheus's histogram: counts per upper bound, and the sum.
class HistogramCounts {
 public:
  explicit HistogramCounts(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void Observe(double value, uint64_t times = 1);
  prometheus::ClientMetric::Histogram Export() const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

class TransferMetrics {
 public:
  // Everything that is counted is there from the start, at 0: what first appears with its first
  // event has no rate that would show it.
  TransferMetrics();
  void OnEnded(const Ended& ended, absl::Time now);
  void OnFallback(const Fallback& fallback);
  void OnRejected(const absl::Status& status);
  // A link to this node that was up.
  void OnLinkLost(const std::string& node) { ++links_lost_[node]; }
  uint64_t ok() const { return ok_; }
  uint64_t failed() const { return failed_; }
  uint64_t bytes_received() const { return bytes_received_; }
  uint64_t links_lost(const std::string& node) const {
    const auto found = links_lost_.find(node);
    return found == links_lost_.end() ? 0 : found->second;
  }
  void Export(std::vector<prometheus::MetricFamily>& families) const;

 private:
  struct PerDirection {
    std::array<uint64_t, 5> results = {};  // ok, error, timeout, aborted, cancelled
    uint64_t bytes = 0;
  };
  std::array<std::array<PerDirection, 2>, kRoutes> by_route_;
  std::vector<HistogramCounts> duration_;  // by route
  HistogramCounts size_;
  std::map<std::string, uint64_t> fallbacks_;            // "from,to"
  std::map<std::string, uint64_t> rejected_;             // by reason
  std::map<std::pair<Reason, int>, uint64_t> failures_;  // by reason and route
  std::map<std::string, uint64_t> links_lost_;           // by node
  uint64_t ok_ = 0;
  uint64_t failed_ = 0;
  uint64_t bytes_received_ = 0;
};

// Makers of families, for what is counted elsewhere: to be given samples, or of one.
prometheus::MetricFamily Gauges(std::string name, std::string help);
prometheus::MetricFamily Counters(std::string name, std::string help);
prometheus::MetricFamily GaugeFamily(std::string name, std::string help, double value);
prometheus::MetricFamily CounterFamily(std::string name, std::string help, double value);
void AddSample(prometheus::MetricFamily& family,
               std::vector<prometheus::ClientMetric::Label> labels, double value);
// ferry_build_info, process_* and log counts: the same for every daemon.
void ExportProcess(std::vector<prometheus::MetricFamily>& families);
// The text format of a scrape.
std::string MetricsText(const std::vector<prometheus::MetricFamily>& families);

}  // namespace ferry
