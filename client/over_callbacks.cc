// SPDX-License-Identifier: Apache-2.0
#include "client/over_callbacks.h"

#include "client/signals.h"

namespace ferry::client {

void OverCallbacks::Add(uint32_t timeline, uint64_t value, Callback callback) {
  std::unique_lock lock(mutex_);
  bool wait_here = false;
  if (timelines_->Over(timeline).value < value) {
    const auto added = waiting_[timeline].emplace(value, callback);
    ++count_;
    // The thread sleeps on a word that every advance changes, so an advance after this look wakes
    // it.
    if (timelines_->Over(timeline).value < value) {
      if (thread_.joinable() || StartThread(
                                    "ferry-callback", [this] { Run(); }, &thread_) == nullptr) {
        changed_.notify_one();
        return;
      }
      wait_here = true;  // no thread can be started: late is better than never
    }
    waiting_[timeline].erase(added);
    --count_;
  }
  lock.unlock();
  if (wait_here) timelines_->WaitOver(timeline, value, kForever);
  callback.done(callback.argument);
}

void OverCallbacks::Stop() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
    changed_.notify_one();
  }
  if (thread.joinable()) thread.join();
}

std::vector<OverCallbacks::Callback> OverCallbacks::Due() {
  std::vector<Callback> due;
  for (uint32_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i].empty()) continue;
    const auto end = waiting_[i].upper_bound(timelines_->Over(i).value);
    for (auto entry = waiting_[i].begin(); entry != end; ++entry) due.push_back(entry->second);
    waiting_[i].erase(waiting_[i].begin(), end);
  }
  count_ -= due.size();
  return due;
}

void OverCallbacks::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || count_ != 0; });
    if (count_ == 0) return;
    const uint32_t seen = timelines_->Events();
    const std::vector<Callback> due = Due();
    lock.unlock();
    for (const Callback& callback : due) callback.done(callback.argument);
    if (due.empty()) timelines_->WaitEvents(seen);
    lock.lock();
  }
}

}  // namespace ferry::client
