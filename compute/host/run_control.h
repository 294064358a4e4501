// SPDX-License-Identifier: Apache-2.0
// Asks whether a run may go on, between launches: works of a plan, trips, and parts of works with
// bounded cost. For any thread of the run; owned by whoever runs. Invariant: once the answer was
// no, the run stops, and nobody is asked again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace ferry::compute {

// Most flops of one launch of a library's product. Other launches are slower: they have at most
// 1/kLaunchShare of it. Either takes a tenth of a second or so of one core.
inline constexpr uint64_t kLaunchFlops = uint64_t{1} << 34;
inline constexpr uint64_t kLaunchShare = 128;

class RunControl {
 public:
  // Called by any thread of the run, by several at once.
  using MayGoOn = std::function<bool()>;

  RunControl() = default;  // the run never stops
  explicit RunControl(MayGoOn may_go_on) : may_go_on_(std::move(may_go_on)) {}

  bool Stops() {
    if (!may_go_on_) return false;
    if (stopped()) return true;
    if (may_go_on_()) return false;
    stopped_.store(true, std::memory_order_relaxed);
    return true;
  }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  const MayGoOn may_go_on_;
  std::atomic<bool> stopped_{false};
};

}  // namespace ferry::compute
