// SPDX-License-Identifier: Apache-2.0
#include "client/handle.h"

#include <pthread.h>

#include <deque>
#include <map>
#include <mutex>
#include <new>

namespace ferry::client {
namespace {

// Memory of the process's freed handles. Never destroyed: handles may outlive every static.
struct Resting {
  std::mutex mutex;
  std::map<uint64_t, std::deque<void*>> by_word;  // those that were freed first come first
};
Resting& AtRest() {
  static Resting* const all = [] {
    auto* made = new Resting;
    pthread_atfork([] { AtRest().mutex.lock(); }, [] { AtRest().mutex.unlock(); },
                   [] { AtRest().mutex.unlock(); });
    return made;
  }();
  return *all;
}

std::atomic<uint64_t>& WordOf(void* memory) { return *static_cast<std::atomic<uint64_t>*>(memory); }

}  // namespace

void* HandleMemory::Take(uint64_t word, size_t bytes) {
  void* memory = nullptr;
  {
    std::lock_guard lock(AtRest().mutex);
    std::deque<void*>& resting = AtRest().by_word[word];
    if (resting.size() > kResting) {
      memory = resting.front();
      resting.pop_front();
    }
  }
  if (memory == nullptr) {
    memory = ::operator new(kHead + bytes);
    new (memory) std::atomic<uint64_t>;
  }
  WordOf(memory).store(word, std::memory_order_relaxed);
  return static_cast<char*>(memory) + kHead;
}

void HandleMemory::Return(uint64_t word, void* handle) {
  void* const memory = static_cast<char*>(handle) - kHead;
  WordOf(memory).store(0, std::memory_order_relaxed);
  std::lock_guard lock(AtRest().mutex);
  AtRest().by_word[word].push_back(memory);
}

}  // namespace ferry::client
