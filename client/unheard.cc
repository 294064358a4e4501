// SPDX-License-Identifier: Apache-2.0
#include "client/unheard.h"

#include <algorithm>
#include <iterator>

namespace ferry::client {

void Unheard::Posted(const Batch& batch) {
  if (batch.count == 0) return;
  std::lock_guard lock(mutex_);
  batches_.emplace(batch.first_id, batch);
  const uint64_t last = batch.first_id + batch.count - 1;
  last_id_ = std::max(last_id_, last);
  for (auto it = early_.lower_bound(batch.first_id); it != early_.end() && *it <= last;) {
    Remove(*it);
    it = early_.erase(it);
  }
}

bool Unheard::Heard(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (finished_) return false;
  last_id_ = std::max(last_id_, id);
  Remove(id);
  return true;
}

void Unheard::Remove(uint64_t id) {
  auto found = batches_.upper_bound(id);
  if (found == batches_.begin() || id - (--found)->first >= found->second.count) {
    early_.insert(id);
    return;
  }
  const Batch batch = found->second;
  batches_.erase(found);
  const uint64_t before = id - batch.first_id;
  const auto keep = [&](uint64_t from, uint64_t count) {
    if (count == 0) return;
    batches_[batch.first_id + from] = {batch.first_id + from, count, batch.timeline,
                                       batch.first_value + from};
  };
  keep(0, before);
  keep(before + 1, batch.count - before - 1);
}

void Unheard::ForgetOver(const Timelines& timelines) {
  std::lock_guard lock(mutex_);
  if (batches_.size() < sweep_at_) return;
  for (auto it = batches_.begin(); it != batches_.end();) {
    const Batch& batch = it->second;
    const bool over = timelines.Over(batch.timeline).value >= batch.first_value + batch.count - 1;
    it = over ? batches_.erase(it) : std::next(it);
  }
  sweep_at_ = std::max(kWorthASweep, 2 * batches_.size());
}

void Unheard::Forget(uint64_t first_id, uint64_t count) {
  std::lock_guard lock(mutex_);
  batches_.erase(batches_.lower_bound(first_id), batches_.lower_bound(first_id + count));
}

std::vector<Unheard::Batch> Unheard::TakeAll() {
  std::lock_guard lock(mutex_);
  std::vector<Batch> all;
  for (const auto& [id, batch] : batches_) all.push_back(batch);
  batches_.clear();
  return all;
}

uint64_t Unheard::Finish() {
  std::lock_guard lock(mutex_);
  finished_ = true;
  return last_id_;
}

}  // namespace ferry::client
