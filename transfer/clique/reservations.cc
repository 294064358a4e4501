// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/reservations.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ferry {

void LaneReservations::Grant(Lane& lane) {
  if (lane.holder != 0 || lane.waiting.empty() || lane.queue.size() >= kDepth) return;
  lane.holder = lane.waiting.front();
  lane.waiting.pop_front();
  granted_.push_back(lane.holder);
}

void LaneReservations::Ask(GlobalDeviceId id, Ticket ticket) {
  home_.Check();
  FERRY_CHECK(ticket != 0);
  Lane& lane = lanes_[id];
  lane.waiting.push_back(ticket);
  Grant(lane);
}

std::vector<LaneReservations::Ticket> LaneReservations::TakeGranted() {
  home_.Check();
  return std::exchange(granted_, {});
}

void LaneReservations::Commit(GlobalDeviceId id, Ticket ticket) {
  home_.Check();
  auto entry = lanes_.find(id);
  FERRY_CHECK(entry != lanes_.end() && entry->second.holder == ticket);
  Lane& lane = entry->second;
  lane.holder = 0;
  lane.queue.push_back(ticket);
  Grant(lane);
}

void LaneReservations::Release(GlobalDeviceId id, Ticket ticket) {
  home_.Check();
  auto entry = lanes_.find(id);
  FERRY_CHECK(entry != lanes_.end());
  Lane& lane = entry->second;
  if (lane.holder == ticket) {
    lane.holder = 0;
    std::erase(granted_, ticket);
  } else if (auto queued = std::find(lane.queue.begin(), lane.queue.end(), ticket);
             queued != lane.queue.end()) {
    lane.queue.erase(queued);
  } else {
    FERRY_CHECK(std::erase(lane.waiting, ticket) == 1);
  }
  Grant(lane);
  if (lane.holder == 0 && lane.queue.empty() && lane.waiting.empty()) lanes_.erase(entry);
}

std::optional<LaneReservations::Ticket> LaneReservations::Head(GlobalDeviceId id) const {
  home_.Check();
  auto entry = lanes_.find(id);
  if (entry == lanes_.end() || entry->second.queue.empty()) return std::nullopt;
  return entry->second.queue.front();
}

}  // namespace ferry
