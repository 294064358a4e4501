// SPDX-License-Identifier: Apache-2.0
#include "client/over_counters.h"

#include <string>

namespace ferry::client {

StatusPtr OverCounters::Choose(uint64_t device, uint32_t wanted, uint32_t* counter) {
  std::lock_guard lock(mutex_);
  *counter = wanted;
  if (wanted != 0) {
    if (wanted < used_.size()) used_[wanted] = true;  // else the daemon says what is wrong
    return nullptr;
  }
  const auto [entry, added] = chosen_.try_emplace(device, 0);
  if (added && used_[0]) {
    uint32_t& free = entry->second;
    for (free = FERRY_TIMELINE_COUNTERS - 1; free != 0 && used_[free];) --free;
    if (free == 0) {
      chosen_.erase(entry);
      return BadField("posting a batch", "options.over_timeline",
                      "is 0, and no 'over' counter is left for device " + std::to_string(device) +
                          ", all are in use; name one that its posts use already");
    }
  }
  used_[entry->second] = true;
  *counter = entry->second;
  return nullptr;
}

}  // namespace ferry::client
