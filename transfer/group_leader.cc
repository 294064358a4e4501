// SPDX-License-Identifier: Apache-2.0
#include "transfer/group_leader.h"

#include <utility>

#include "base/check.h"

namespace ferry {

GroupLeader::Led& GroupLeader::LedOf(const Clique& clique) {
  auto entry = led_.find(clique);
  FERRY_CHECK(entry != led_.end());
  return entry->second;
}

bool GroupLeader::Add(absl::Time now, const Clique& clique, const PairName& pair, uint64_t bytes,
                      int32_t priority) {
  Led& led = led_.try_emplace(clique, options_).first->second;
  if (!led.batcher.Add(now, pair, bytes, priority)) return false;
  ++waiting_;
  changed_.insert(clique);
  return true;
}

bool GroupLeader::Remove(const Clique& clique, const PairName& pair) {
  auto entry = led_.find(clique);
  if (entry == led_.end() || !entry->second.batcher.Remove(pair)) return false;
  --waiting_;
  return true;
}

std::vector<Clique> GroupLeader::TakeDue(absl::Time now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const Clique clique = timers_.begin()->second;
    timers_.erase(timers_.begin());
    LedOf(clique).timer = absl::InfiniteFuture();
    changed_.insert(clique);
  }
  std::vector<Clique> due;
  for (const Clique& clique : std::exchange(changed_, {})) {
    Led& led = LedOf(clique);
    if (led.asked || led.batcher.empty()) continue;
    const absl::Time old = led.batcher.DueAt();
    if (led.on_the_way == 0 || led.batcher.Full() || old <= now) {
      led.asked = true;
      due.push_back(clique);
    } else if (old < led.timer) {
      timers_.erase({led.timer, clique});
      led.timer = old;
      timers_.emplace(old, clique);
    }
  }
  return due;
}

absl::Time GroupLeader::NextDue() const {
  return timers_.empty() ? absl::InfiniteFuture() : timers_.begin()->first;
}

std::optional<GroupLeader::Numbered> GroupLeader::Cut(const Clique& clique) {
  Led& led = LedOf(clique);
  FERRY_CHECK(led.asked);
  led.asked = false;
  if (led.batcher.empty()) return std::nullopt;
  waiting_ -= led.batcher.size();
  Numbered group{led.attempt, ++led.number, led.batcher.Cut()};
  waiting_ += led.batcher.size();
  led.open = true;
  ++led.on_the_way;
  changed_.insert(clique);
  return group;
}

void GroupLeader::OnOver(const Clique& clique) {
  Led& led = LedOf(clique);
  FERRY_CHECK(led.on_the_way > 0);
  --led.on_the_way;
  changed_.insert(clique);
}

void GroupLeader::Close(Led& led) {
  if (led.open) ++led.attempt;
  led.open = false;
}

bool GroupLeader::EndAttempt(const Clique& clique, uint32_t attempt) {
  auto entry = led_.find(clique);
  if (entry == led_.end() || !entry->second.open || entry->second.attempt != attempt) return false;
  Close(entry->second);
  return true;
}

std::optional<uint32_t> GroupLeader::IdleAttempt(const Clique& clique) const {
  auto entry = led_.find(clique);
  if (entry == led_.end() || !entry->second.open || entry->second.on_the_way > 0) {
    return std::nullopt;
  }
  return entry->second.attempt;
}

void GroupLeader::Drop(const Clique& clique) {
  auto entry = led_.find(clique);
  if (entry == led_.end()) return;
  Led& led = entry->second;
  waiting_ -= led.batcher.size();
  led.batcher.Clear();
  Close(led);
  led.number = 0;
  led.asked = false;
}

}  // namespace ferry
