// SPDX-License-Identifier: Apache-2.0
#include "transfer/route_estimate.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {
namespace {

constexpr double kWeight = 1.0 / 8;  // of a new measurement

}  // namespace

void RouteEstimate::Mean::Add(double sample) {
  if (known()) {
    value_ += kWeight * (sample - value_);
    return;
  }
  const bool better = best_ == Best::kLeast ? sample < value_ : sample > value_;
  if (samples_ == 0 || better) value_ = sample;
  ++samples_;
}

void RouteEstimate::OnLaunch(absl::Time now) {
  home_.Check();
  last_launch_ = now;
  if (running_++ > 0) return;
  since_ = now;
  launches_ = 0;
  moved_ = 0;
  clean_ = true;
}

void RouteEstimate::OnDone(absl::Time now, uint64_t bytes, bool moved) {
  home_.Check();
  FERRY_CHECK(running_ > 0);
  --running_;
  ++launches_;
  moved_ += bytes;
  clean_ = clean_ && moved;
  const double took = absl::ToDoubleSeconds(now - since_);
  if (running_ > 0 || !clean_ || took <= 0) return;
  if (launches_ == 1 && moved_ <= kLatencyBytes) {
    seconds_.Add(took);
  } else if (moved_ / launches_ >= kBandwidthBytes) {
    // The latency, if it is known, is part of it, but never most of it.
    const double moving = std::max(took - seconds_.value(), took / 2);
    bytes_per_second_.Add(static_cast<double>(moved_) / moving);
  }
}

void RouteEstimate::Forget() {
  home_.Check();
  seconds_.Forget();
  bytes_per_second_.Forget();
  clean_ = false;
}

std::optional<RouteTime> RouteEstimate::TimeFor(uint64_t bytes, const RoutePrior* prior) const {
  home_.Check();
  const bool small = bytes <= kLatencyBytes;
  const bool measured = small ? seconds_.known() : bytes_per_second_.known();
  if (!measured && prior == nullptr) return std::nullopt;
  const absl::Duration start = seconds_.known()   ? absl::Seconds(seconds_.value())
                               : prior != nullptr ? prior->latency
                                                  : absl::ZeroDuration();
  if (small) return RouteTime{start, measured};
  const double rate = measured ? bytes_per_second_.value() : prior->bytes_per_second;
  return RouteTime{start + absl::Seconds(static_cast<double>(bytes) / rate), measured};
}

std::optional<absl::Duration> RouteEstimate::latency() const {
  home_.Check();
  if (!seconds_.known()) return std::nullopt;
  return absl::Seconds(seconds_.value());
}

std::optional<double> RouteEstimate::bytes_per_second() const {
  home_.Check();
  if (!bytes_per_second_.known()) return std::nullopt;
  return bytes_per_second_.value();
}

}  // namespace ferry
