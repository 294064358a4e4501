// SPDX-License-Identifier: Apache-2.0
#include "client/queued_stores.h"

#include <algorithm>
#include <iterator>

namespace ferry::client {
namespace {

// Removes the stores that `word` has reached.
void Sweep(const uint64_t* word, std::vector<QueuedStores::Store>* stores) {
  const uint64_t now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  stores->erase(
      std::remove_if(stores->begin(), stores->end(),
                     [now](const QueuedStores::Store& store) { return store.value <= now; }),
      stores->end());
}

}  // namespace

QueuedStores& QueuedStores::Get() {
  static QueuedStores* const all = new QueuedStores;  // handles may outlive every static
  return *all;
}

void QueuedStores::Add(const uint64_t* word, uint64_t value, const ParkedStreams::Stream& stream) {
  std::lock_guard lock(mutex_);
  std::vector<Store>& stores = stores_[word];
  Sweep(word, &stores);
  stores.push_back({value, stream, ParkedStreams::Get().NextPlace()});
}

std::vector<QueuedStores::Store> QueuedStores::Of(const uint64_t* word, uint64_t value) {
  std::vector<Store> of;
  std::lock_guard lock(mutex_);
  const auto found = stores_.find(word);
  if (found == stores_.end()) return of;
  Sweep(word, &found->second);
  std::copy_if(found->second.begin(), found->second.end(), std::back_inserter(of),
               [value](const Store& store) { return store.value >= value; });
  return of;
}

void QueuedStores::Forget(const void* begin, size_t bytes) {
  const auto* from = static_cast<const uint64_t*>(begin);
  std::lock_guard lock(mutex_);
  stores_.erase(stores_.lower_bound(from), stores_.lower_bound(from + bytes / sizeof(uint64_t)));
}

void QueuedStores::ForgetMade() {
  std::lock_guard lock(mutex_);
  for (auto& [word, stores] : stores_) Sweep(word, &stores);
}

}  // namespace ferry::client
