// SPDX-License-Identifier: Apache-2.0
// How long transfers take over one route from one peer, by what the launches of this daemon took.
// Pure; time is an argument, so that the same launches give the same choice. Home: control (owned
// by the engine).
//
// What is measured is a busy time, from a launch while none runs to the moment when none runs any
// more: how launches that run at once share the route is then no matter. A busy time of one small
// launch tells the latency, one of large ones the bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace ferry {

// What a route is taken to be good for until it is measured: below.
struct RoutePrior {
  absl::Duration latency;
  double bytes_per_second = 0;
  bool operator==(const RoutePrior&) const = default;
};

// What a transfer would take, and whether that was measured.
struct RouteTime {
  absl::Duration time;
  bool measured = false;
};

// Between GPUs of two daemons of one host, as posted transfers were measured on two H200
// (docs/performance.md): NCCL over NVLink; UCX over shared memory, and
// TCP, the GPUs' bytes staged. Between
// hosts it depends on what is between them.
inline constexpr RoutePrior kNcclWithinHost = {absl::Microseconds(200), 300e9};
inline constexpr RoutePrior kStagedWithinHost = {absl::Microseconds(200), 8.9e9};

class RouteEstimate {
 public:
  // Transfers of at most so many bytes are latency, those of at least so many (each of a busy time,
  // on average) bandwidth: many small ones take as long as starting them takes.
  static constexpr uint64_t kLatencyBytes = uint64_t{64} << 10;
  static constexpr uint64_t kBandwidthBytes = uint64_t{1} << 20;
  // So many measurements make an estimate. The first ones carry what is done once (mapping,
  // connecting, opening a communicator, first touch), which may be a thousand times the rest: so an
  // estimate begins with the best of them. One that is too good is put right by the transfers that
  // it draws; one that is too bad draws none.
  static constexpr uint32_t kEnough = 4;

  void OnLaunch(absl::Time now);
  // A launch is over; `moved` is false if it failed.
  void OnDone(absl::Time now, uint64_t bytes, bool moved);
  // Nothing measured so far holds any more.
  void Forget();

  bool idle() const { return running_ == 0; }
  absl::Time last_launch() const { return last_launch_; }
  // Of a transfer of `bytes`, if what matters most for it, latency or bandwidth, was measured often
  // enough; else by `prior`, which may be null.
  std::optional<RouteTime> TimeFor(uint64_t bytes, const RoutePrior* prior = nullptr) const;
  std::optional<absl::Duration> latency() const;
  std::optional<double> bytes_per_second() const;

 private:
  enum class Best : uint8_t { kLeast, kMost };
  class Mean {  // exponentially weighted, from the best of the first kEnough on
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
  // The busy time.
  size_t running_ = 0;
  absl::Time since_;
  size_t launches_ = 0;
  uint64_t moved_ = 0;
  bool clean_ = true;  // all of them were moved, and nothing was forgotten meanwhile
};

}  // namespace ferry
