// SPDX-License-Identifier: Apache-2.0
// Counts what becomes of transfers, for the metrics page. Home: control. The page's text is made
// there on request, so counting is plain arithmetic. Names: docs/metrics.md.
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
#include "base/home.h"
#include "base/reason.h"
#include "transfer/engine.h"

namespace ferry {

// A Prometheus histogram: a count for each upper bound, and the sum of all values. Home: its
// owner's.
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
  // Makes every counter at 0 from the start. A series that first appears with its first event has
  // no rate that would show that event.
  TransferMetrics();
  void OnEnded(const Ended& ended, absl::Time now);
  void OnFallback(const Fallback& fallback);
  void OnRejected(const absl::Status& status);
  // Counts a link to `node` that was up and is lost.
  void OnLinkLost(const std::string& node) {
    home_.Check();
    ++links_lost_[node];
  }
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
  [[no_unique_address]] HomeChecker home_;
};

// Make families for what other parts count. Gauges and Counters are empty (AddSample fills them);
// GaugeFamily and CounterFamily have one value.
prometheus::MetricFamily Gauges(std::string name, std::string help);
prometheus::MetricFamily Counters(std::string name, std::string help);
prometheus::MetricFamily GaugeFamily(std::string name, std::string help, double value);
prometheus::MetricFamily CounterFamily(std::string name, std::string help, double value);
void AddSample(prometheus::MetricFamily& family,
               std::vector<prometheus::ClientMetric::Label> labels, double value);
// ferry_build_info, process_* and log counts: the same for every daemon.
void ExportProcess(std::vector<prometheus::MetricFamily>& families);
// The page in Prometheus's text format.
std::string MetricsText(const std::vector<prometheus::MetricFamily>& families);

}  // namespace ferry
