// SPDX-License-Identifier: Apache-2.0
#include "base/closer.h"

#include <pthread.h>

#include <thread>

namespace ferry {

Closer& Closer::Get() {
  static Closer* only = [] {
    pthread_atfork(nullptr, nullptr, [] { only = new Closer(); });
    return new Closer();
  }();
  return *only;
}

void Closer::Close(uid_t owner, UniqueFd fd) {
  bool another = false;
  {
    MutexLock lock(mutex_);
    ++waiting_;
    Owner& entry = owners_[owner];
    entry.queue.push_back(std::move(fd));
    if (entry.closing || entry.queue.size() > 1) return;  // it has its turn already
    turns_.push_back(owner);
    another = idle_ < turns_.size() && threads_ < kThreads;
    if (another) ++threads_;
  }
  if (another) {
    std::thread([this] { Run(); }).detach();
  } else {
    more_.notify_one();
  }
}

bool Closer::Clogged(uid_t owner) const {
  if (waiting() <= kMost) return false;
  MutexLock lock(mutex_);
  const auto entry = owners_.find(owner);
  return entry != owners_.end() && entry->second.queue.size() >= kMost;
}

void Closer::Run() {
  pthread_setname_np(pthread_self(), "closer");
  MutexLock lock(mutex_);
  while (true) {
    ++idle_;
    while (turns_.empty()) more_.wait(mutex_);
    --idle_;
    const uid_t owner = turns_.front();
    turns_.pop_front();
    {
      Owner& entry = owners_[owner];
      UniqueFd fd = std::move(entry.queue.front());
      entry.queue.pop_front();
      entry.closing = true;
      mutex_.Unlock();
      fd.Reset();
      mutex_.Lock();
    }
    --waiting_;
    Owner& entry = owners_[owner];
    entry.closing = false;
    if (entry.queue.empty()) {
      owners_.erase(owner);
    } else {
      turns_.push_back(owner);
    }
  }
}

}  // namespace ferry
