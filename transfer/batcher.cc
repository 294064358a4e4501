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
  const auto [entry, fresh] = index_.try_emplace(pair);
  if (!fresh) return false;
  entry->second = std::make_unique<Waiting>(pair, priority, bytes);
  QueueOf(bytes).Add(*entry->second);
  bytes_ += bytes;
  since_ = std::min(since_, now);
  return true;
}

bool TransferBatcher::Remove(const PairName& pair) {
  auto entry = index_.find(pair);
  if (entry == index_.end()) return false;
  Waiting& waiting = *entry->second;
  bytes_ -= waiting.left();
  QueueOf(waiting.offset + waiting.left()).Remove(waiting);
  index_.erase(entry);
  if (index_.empty()) since_ = absl::InfiniteFuture();
  return true;
}

void TransferBatcher::Clear() {
  small_.Clear();
  large_.Clear();
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
  const auto take = [&](FairQueue& queue, uint64_t bytes) {
    Waiting& waiting = static_cast<Waiting&>(*queue.Next());
    if (!chunks.empty() && chunks.back().pair == waiting.pair) {  // it has two turns in a row
      chunks.back().bytes += bytes;
    } else {
      chunks.push_back({waiting.pair, waiting.offset, bytes});
    }
    waiting.offset += bytes;
    room -= bytes;
    bytes_ -= bytes;
    queue.Serve(bytes);
    if (!waiting.waiting()) index_.erase(chunks.back().pair);
  };
  const uint64_t kept = large_.empty() ? 0 : options_.chunk_bytes;
  const size_t small_chunks = options_.group_chunks - (large_.empty() ? 0 : 1);
  while (!small_.empty() && chunks.size() < small_chunks) {
    const uint64_t bytes = small_.Next()->left();
    if (bytes + kept > room) break;
    take(small_, bytes);
  }
  while (!large_.empty() && room > 0 && chunks.size() < options_.group_chunks) {
    take(large_, std::min({large_.Next()->left(), options_.chunk_bytes, room}));
  }
  // What is left has waited already: it stays as old as the oldest was.
  if (index_.empty()) since_ = absl::InfiniteFuture();
  return chunks;
}

}  // namespace ferry
