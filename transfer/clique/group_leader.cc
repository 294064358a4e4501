// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/group_leader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ferry {

GroupLeader::Led& GroupLeader::LedOf(const Clique& clique) {
  auto entry = led_.find(clique);
  FERRY_CHECK(entry != led_.end());
  return entry->second;
}

bool GroupLeader::Add(absl::Time now, const Clique& clique, const PairName& pair, uint64_t bytes,
                      int32_t priority, bool unstaged) {
  home_.Check();
  Led& led = led_.try_emplace(clique, options_).first->second;
  if (!led.cutter.Add(now, pair, bytes, priority, unstaged)) return false;
  ++waiting_;
  changed_.insert(clique);
  return true;
}

void GroupLeader::Hold(const Clique& clique, bool held) {
  home_.Check();
  auto entry = led_.find(clique);
  if (entry == led_.end() || std::exchange(entry->second.held, held) == held) return;
  changed_.insert(clique);
}

bool GroupLeader::Remove(const Clique& clique, const PairName& pair) {
  home_.Check();
  auto entry = led_.find(clique);
  if (entry == led_.end() || !entry->second.cutter.Remove(pair)) return false;
  --waiting_;
  return true;
}

GroupLeader::Due GroupLeader::TakeDue(absl::Time now) {
  home_.Check();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const Clique clique = timers_.begin()->second;
    timers_.erase(timers_.begin());
    LedOf(clique).timer = absl::InfiniteFuture();
    changed_.insert(clique);
  }
  Due due;
  for (const Clique& clique : std::exchange(changed_, {})) {
    Led& led = LedOf(clique);
    if (led.running_out) {
      if (led.on_the_way == 0 && !led.asked) due.close.emplace_back(clique, led.attempt);
      continue;
    }
    if (led.state == Led::kClosed && (led.warm || !led.cutter.empty())) {
      if (led.not_before > now) {
        WakeAt(clique, led, led.not_before);
        continue;
      }
      led.warm = false;
      led.state = Led::kOpening;
      due.open.emplace_back(clique, led.attempt);
    }
    if (led.state != Led::kOpen || led.asked || led.cutter.empty()) continue;
    const absl::Time old = led.cutter.DueAt();
    if ((led.on_the_way == 0 && !led.held) || led.cutter.Full() || old <= now) {
      led.asked = true;
      due.ask.push_back(clique);
    } else {
      WakeAt(clique, led, old);
    }
  }
  return due;
}

void GroupLeader::WakeAt(const Clique& clique, Led& led, absl::Time when) {
  if (when >= led.timer) return;
  timers_.erase({led.timer, clique});
  led.timer = when;
  timers_.emplace(when, clique);
}

void GroupLeader::Warm(const Clique& clique) {
  home_.Check();
  Led& led = led_.try_emplace(clique, options_).first->second;
  // And may be closed one day; what runs out is not open for long.
  if (led.state != Led::kClosed && !led.running_out) return;
  led.warm = true;
  changed_.insert(clique);
}

bool GroupLeader::OnOpened(const Clique& clique, uint32_t attempt) {
  home_.Check();
  auto entry = led_.find(clique);
  if (entry == led_.end() || entry->second.state != Led::kOpening ||
      entry->second.attempt != attempt) {
    return false;
  }
  entry->second.state = Led::kOpen;
  entry->second.backoff = kFirstBackoff;
  changed_.insert(clique);
  return true;
}

void GroupLeader::BackOff(absl::Time now, const Clique& clique) {
  home_.Check();
  Led& led = LedOf(clique);
  led.not_before = now + led.backoff;
  led.backoff = std::min(2 * led.backoff, kLongestBackoff);
}

absl::Time GroupLeader::NextDue() const {
  home_.Check();
  return timers_.empty() ? absl::InfiniteFuture() : timers_.begin()->first;
}

std::optional<GroupLeader::Numbered> GroupLeader::Cut(const Clique& clique, uint64_t room) {
  home_.Check();
  Led& led = LedOf(clique);
  FERRY_CHECK(led.asked);
  led.asked = false;
  changed_.insert(clique);
  if (led.cutter.empty() || led.running_out || led.state != Led::kOpen) return std::nullopt;
  waiting_ -= led.cutter.size();
  Numbered group{led.attempt, ++led.number, led.cutter.Cut(room)};
  waiting_ += led.cutter.size();
  ++led.on_the_way;
  return group;
}

void GroupLeader::OnOver(const Clique& clique) {
  home_.Check();
  Led& led = LedOf(clique);
  FERRY_CHECK(led.on_the_way > 0);
  --led.on_the_way;
  changed_.insert(clique);
}

void GroupLeader::Close(Led& led) {
  if (led.state != Led::kClosed) ++led.attempt;
  led.state = Led::kClosed;
  led.running_out = false;
}

bool GroupLeader::EndAttempt(const Clique& clique, uint32_t attempt) {
  home_.Check();
  auto entry = led_.find(clique);
  if (entry == led_.end() || entry->second.state == Led::kClosed ||
      entry->second.attempt != attempt) {
    return false;
  }
  Close(entry->second);
  changed_.insert(clique);
  return true;
}

std::optional<uint32_t> GroupLeader::IdleAttempt(const Clique& clique) const {
  home_.Check();
  auto entry = led_.find(clique);
  if (entry == led_.end() || entry->second.state != Led::kOpen || entry->second.on_the_way > 0 ||
      !entry->second.cutter.empty()) {
    return std::nullopt;
  }
  return entry->second.attempt;
}

void GroupLeader::RunOut(const Clique& clique, uint32_t attempt) {
  home_.Check();
  auto entry = led_.find(clique);
  if (entry == led_.end() || entry->second.state != Led::kOpen ||
      entry->second.attempt != attempt) {
    return;
  }
  entry->second.running_out = true;
  changed_.insert(clique);
}

void GroupLeader::Drop(const Clique& clique) {
  home_.Check();
  auto entry = led_.find(clique);
  if (entry == led_.end()) return;
  Led& led = entry->second;
  waiting_ -= led.cutter.size();
  led.cutter.Clear();
  Close(led);
  led.number = 0;
  led.asked = false;
  led.warm = false;
  led.held = false;
  led.not_before = absl::InfinitePast();  // of another life, or network
  led.backoff = kFirstBackoff;
}

}  // namespace ferry
