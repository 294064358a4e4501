// SPDX-License-Identifier: Apache-2.0
#include "transfer/batcher.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {

TransferBatcher::TransferBatcher(const Options& options) : options_(options) {
  FERRY_CHECK(options.group_bytes / 2 >= options.chunk_bytes && options.chunk_bytes > 0);
  FERRY_CHECK(options.group_chunks >= 2 && options.group_chunks <= kMaxGroupChunks);
}

bool TransferBatcher::Add(absl::Time now, const PairName& pair, uint64_t bytes, int32_t priority) {
  const Where where{bytes > options_.chunk_bytes, Place(-int64_t{priority}, next_++)};
  if (!index_.try_emplace(pair, where).second) return false;
  QueueOf(where).emplace(where.place, Waiting{pair, 0, bytes});
  bytes_ += bytes;
  since_ = std::min(since_, now);
  return true;
}

bool TransferBatcher::Remove(const PairName& pair) {
  auto entry = index_.find(pair);
  if (entry == index_.end()) return false;
  Queue& queue = QueueOf(entry->second);
  auto waiting = queue.find(entry->second.place);
  bytes_ -= waiting->second.left;
  queue.erase(waiting);
  index_.erase(entry);
  if (index_.empty()) since_ = absl::InfiniteFuture();
  return true;
}

void TransferBatcher::Clear() {
  small_.clear();
  large_.clear();
  index_.clear();
  bytes_ = 0;
  since_ = absl::InfiniteFuture();
}

bool TransferBatcher::Full() const {
  return bytes_ >= options_.group_bytes || index_.size() >= options_.group_chunks;
}

absl::Time TransferBatcher::DueAt() const { return since_ + options_.age; }

std::vector<Chunk> TransferBatcher::Cut() {
  std::vector<Chunk> chunks;
  uint64_t room = options_.group_bytes;
  const auto take = [&](Waiting& waiting, uint64_t bytes) {
    if (!chunks.empty() && chunks.back().pair == waiting.pair) {  // the only large one left
      chunks.back().bytes += bytes;
    } else {
      chunks.push_back({waiting.pair, waiting.offset, bytes});
    }
    waiting.offset += bytes;
    waiting.left -= bytes;
    room -= bytes;
    bytes_ -= bytes;
  };
  const uint64_t kept = large_.empty() ? 0 : options_.chunk_bytes;
  const size_t small_chunks = options_.group_chunks - (large_.empty() ? 0 : 1);
  while (!small_.empty() && chunks.size() < small_chunks) {
    Waiting& waiting = small_.begin()->second;
    if (waiting.left + kept > room) break;
    take(waiting, waiting.left);
    index_.erase(waiting.pair);
    small_.erase(small_.begin());
  }
  while (!large_.empty() && room > 0 && chunks.size() < options_.group_chunks) {
    auto first = large_.begin();
    take(first->second, std::min({first->second.left, options_.chunk_bytes, room}));
    if (first->second.left == 0) {
      index_.erase(first->second.pair);
      large_.erase(first);
    } else {  // to the end of its equals
      auto node = large_.extract(first);
      node.key().second = next_++;
      index_.find(node.mapped().pair)->second.place = node.key();
      large_.insert(std::move(node));
    }
  }
  // What is left has waited already: it stays as old as the oldest was.
  if (index_.empty()) since_ = absl::InfiniteFuture();
  return chunks;
}

}  // namespace ferry
