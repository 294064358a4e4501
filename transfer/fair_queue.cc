// SPDX-License-Identifier: Apache-2.0
#include "transfer/fair_queue.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace ferry {
namespace {

// A clock's ticks for a byte at priority 0: one is left at the highest, and a lane that is never
// idle takes years to run through all of them at the lowest.
constexpr double kTicksPerByte = 4;
constexpr double kPriorityOfDouble = 50;  // that much more priority is twice the share

uint64_t ClockOf(uint64_t bytes, int32_t priority) {
  const double weight = std::exp2(priority / kPriorityOfDouble);
  return static_cast<uint64_t>(static_cast<double>(bytes) * kTicksPerByte / weight);
}

}  // namespace

void FairQueue::Add(Item& item) {
  home_.Check();
  FERRY_CHECK(!item.waiting_);
  FERRY_CHECK(item.priority_ >= -kMaxPriority && item.priority_ <= kMaxPriority);
  item.waiting_ = true;
  item.number_ = next_number_++;
  ++size_;
  Enter(item.session_).places.insert(PlaceOf(item));
}

FairQueue::Flow& FairQueue::Enter(uint64_t session) {
  Flow& flow = flows_.try_emplace(session).first->second;
  if (!flow.places.empty()) return flow;
  resting_.erase({flow.clock, session});
  flow.clock = std::max(flow.clock, now_);
  turns_.insert({flow.clock, session});
  return flow;
}

void FairQueue::Return(Item& item, uint64_t left) {
  home_.Check();
  FERRY_CHECK(!item.waiting_ && item.left_ == 0);
  item.waiting_ = item.returned_ = true;
  item.left_ = left;
  ++size_;
  Flow& flow = Enter(item.session_);
  turns_.erase({flow.clock, item.session_});
  const uint64_t charged = ClockOf(left, item.priority_);
  flow.clock = std::max(flow.clock - std::min(charged, flow.clock), now_);
  turns_.insert({flow.clock, item.session_});
  flow.places.insert(PlaceOf(item));
}

void FairQueue::Charge(const Item& item, uint64_t served, uint64_t cost) {
  home_.Check();
  if (size_ == 0) return;
  Flow& flow = flows_.try_emplace(item.session_).first->second;
  const Turn before{flow.clock, item.session_};
  const bool waits = !flow.places.empty();
  (waits ? turns_ : resting_).erase(before);
  const uint64_t charged = ClockOf(std::max(served, kLeastCost), item.priority_);
  const uint64_t owed = ClockOf(std::max(cost, kLeastCost), item.priority_);
  flow.clock = std::max(flow.clock, now_);  // of one that rests: where it would begin
  if (owed > charged) {
    flow.clock += owed - charged;
  } else {
    flow.clock = std::max(flow.clock - std::min(charged - owed, flow.clock), now_);
  }
  (waits ? turns_ : resting_).insert({flow.clock, item.session_});
}

void FairQueue::Remove(Item& item) {
  home_.Check();
  if (!item.waiting_) return;
  Leave(flows_.find(item.session_)->second, item);
}

void FairQueue::Clear() {
  home_.Check();
  for (auto& [session, flow] : flows_) {
    for (const Place& place : flow.places) place.item->waiting_ = false;
  }
  flows_.clear();
  turns_.clear();
  resting_.clear();
  size_ = 0;
  now_ = 0;
}

FairQueue::Item* FairQueue::Next() const {
  home_.Check();
  if (turns_.empty()) return nullptr;
  return flows_.find(turns_.begin()->second)->second.places.begin()->item;
}

void FairQueue::Serve(uint64_t bytes) {
  home_.Check();
  Item& item = *Next();
  FERRY_CHECK(bytes <= item.left_);
  const uint64_t session = item.session_;
  Flow& flow = flows_.find(session)->second;
  now_ = flow.clock;
  turns_.erase(turns_.begin());
  flow.clock += ClockOf(std::max(bytes, kLeastCost), item.priority_);
  turns_.insert({flow.clock, session});
  item.left_ -= bytes;
  if (item.left_ == 0) Leave(flow, item);
  // Those that rest and are not ahead any more would start at `now_` anyway.
  while (!resting_.empty() && resting_.begin()->first <= now_) {
    flows_.erase(resting_.begin()->second);
    resting_.erase(resting_.begin());
  }
}

void FairQueue::Leave(Flow& flow, Item& item) {
  item.waiting_ = false;
  --size_;
  flow.places.erase(PlaceOf(item));
  if (size_ == 0) return Clear();  // nobody is left to be fair to
  if (!flow.places.empty()) return;
  const Turn turn{flow.clock, item.session_};
  turns_.erase(turn);
  resting_.insert(turn);
}

}  // namespace ferry
