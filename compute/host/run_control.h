// SPDX-License-Identifier: Apache-2.0
// What may end a run before it is over. It is asked between launches: works of a plan, trips, and
// parts of works whose cost is bounded. Any thread of the run; whoever runs owns it.
// Invariant: once it has said so, a run stops, and its asker is not asked again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace ferry::compute {

// What a launch may cost, in flops of a library's product; and by how many times less of all else,
// which is slower. Either is a tenth of a second or so of one core.
inline constexpr uint64_t kLaunchFlops = uint64_t{1} << 34;
inline constexpr uint64_t kLaunchShare = 128;

class RunControl {
 public:
  // Called by any thread of the run, several at once.
  using MayGoOn = std::function<bool()>;

  RunControl() = default;  // never stops
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
