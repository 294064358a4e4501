// SPDX-License-Identifier: Apache-2.0
// How long transfers over one route from one peer take, by what this daemon's launches took. Pure;
// time is an argument, so that the same launches give the same choice. Home: control (owned by
// TransferEngine).
//
// What is measured is a busy time: from a launch when none runs to the moment when none runs any
// more. So it does not matter how launches that run at once share the route. A busy time with one
// small launch gives a latency, one with large launches a bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/home.h"

namespace ferry {

// What a route is assumed to be good for until it is measured.
struct RoutePrior {
  absl::Duration latency;
  double bytes_per_second = 0;
  bool operator==(const RoutePrior&) const = default;
};

// How long a transfer would take, and whether that is measured.
struct RouteTime {
  absl::Duration time;
  bool measured = false;
};

// Priors between GPUs of two daemons of one host, as posted transfers were measured on two H200
// (docs/performance.md): for NCCL over NVLink; for UCX over shared memory and TCP, with the GPUs'
// bytes staged. Between hosts there is no prior: it depends on what is between them.
inline constexpr RoutePrior kNcclWithinHost = {absl::Microseconds(200), 300e9};
inline constexpr RoutePrior kStagedWithinHost = {absl::Microseconds(200), 8.9e9};

class RouteEstimate {
 public:
  // A busy time counts as latency if its launch has at most kLatencyBytes. It counts as bandwidth
  // if its launches have at least kBandwidthBytes on average: many small launches take as long as
  // it takes to start them.
  static constexpr uint64_t kLatencyBytes = uint64_t{64} << 10;
  static constexpr uint64_t kBandwidthBytes = uint64_t{1} << 20;
  // An estimate needs so many measurements, and begins with the best of them. The first ones
  // include what is done only once (mapping, connecting, opening a communicator, first touch),
  // which may take a thousand times the rest. An estimate that is too good draws transfers, which
  // correct it; one that is too bad would draw none.
  static constexpr uint32_t kEnough = 4;

  void OnLaunch(absl::Time now);
  // A launch is over; `moved` is false if it failed.
  void OnDone(absl::Time now, uint64_t bytes, bool moved);
  // Drops all measurements: they do not hold any more.
  void Forget();

  bool idle() const { return running_ == 0; }
  absl::Time last_launch() const { return last_launch_; }
  // The time for a transfer of `bytes`: measured, if what matters most for it, latency or
  // bandwidth, was measured often enough; else by `prior`, which may be null.
  std::optional<RouteTime> TimeFor(uint64_t bytes, const RoutePrior* prior = nullptr) const;
  std::optional<absl::Duration> latency() const;
  std::optional<double> bytes_per_second() const;

 private:
  enum class Best : uint8_t { kLeast, kMost };
  class Mean {  // exponentially weighted; starts with the best of the first kEnough samples
   public:
    explicit Mean(Best best) : best_(best) {}
    void Add(double sample);
    void Forget() { samples_ = 0; }
    bool known() const { return samples_ >= kEnough; }
    double value() const { return known() ? value_ : 0; }

   private:
    Best best_;
    double value_ = 0;
    uint32_t samples_ = 0;
  };

  Mean seconds_{Best::kLeast};
  Mean bytes_per_second_{Best::kMost};
  absl::Time last_launch_ = absl::InfinitePast();
  // The present busy time: from when the first launch began until none runs.
  size_t running_ = 0;   // launches that are not over
  absl::Time since_;     // when the busy time began
  size_t launches_ = 0;  // launches of the busy time that are over
  uint64_t moved_ = 0;   // bytes that they have moved
  // All launches of the busy time moved their bytes, and Forget() was not called meanwhile.
  bool clean_ = true;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
