// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/group_cutter.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {

GroupCutter::GroupCutter(const Options& options) : options_(options) {
  FERRY_CHECK(options.group_bytes / 2 >= options.chunk_bytes && options.chunk_bytes > 0);
  FERRY_CHECK(options.group_chunks >= 2 && options.group_chunks <= kMaxGroupChunks);
}

bool GroupCutter::Add(absl::Time now, const PairName& pair, uint64_t bytes, int32_t priority,
                      bool unstaged) {
  home_.Check();
  const auto [entry, fresh] = index_.try_emplace(pair);
  if (!fresh) return false;
  FairQueue& queue = QueueOf(pair, bytes);
  entry->second = std::make_unique<Waiting>(pair, priority, bytes, unstaged && &queue != &small_);
  queue.Add(*entry->second);
  bytes_ += bytes;
  since_ = std::min(since_, now);
  return true;
}

bool GroupCutter::Remove(const PairName& pair) {
  home_.Check();
  auto entry = index_.find(pair);
  if (entry == index_.end()) return false;
  Waiting& waiting = *entry->second;
  bytes_ -= waiting.left();
  QueueOf(pair, waiting.offset + waiting.left()).Remove(waiting);
  index_.erase(entry);
  if (index_.empty()) since_ = absl::InfiniteFuture();
  return true;
}

void GroupCutter::Clear() {
  home_.Check();
  small_.Clear();
  large_.Clear();
  firings_.Clear();
  index_.clear();
  bytes_ = 0;
  since_ = absl::InfiniteFuture();
}

bool GroupCutter::Full() const {
  home_.Check();
  // A firing waits for no company: what comes while its group waits for lanes joins it.
  return bytes_ >= options_.group_bytes || index_.size() >= options_.group_chunks ||
         !firings_.empty();
}

absl::Time GroupCutter::DueAt() const {
  home_.Check();
  return since_ + options_.age;
}

void GroupCutter::Take(FairQueue& queue, uint64_t bytes, std::vector<Chunk>& chunks) {
  Waiting& waiting = static_cast<Waiting&>(*queue.Next());
  if (waiting.place < chunks.size() && chunks[waiting.place].pair == waiting.pair) {
    chunks[waiting.place].bytes += bytes;
  } else {
    waiting.place = chunks.size();
    chunks.push_back({waiting.pair, waiting.offset, bytes});
  }
  waiting.offset += bytes;
  bytes_ -= bytes;
  queue.Serve(bytes);
  if (!waiting.waiting()) index_.erase(PairName(waiting.pair));
}

uint64_t GroupCutter::Evenly(uint64_t bytes, uint64_t room) const {
  if (bytes <= room) return bytes;
  const uint64_t groups = (bytes + room - 1) / room, chunk = options_.chunk_bytes;
  return ((bytes + groups - 1) / groups + chunk - 1) / chunk * chunk;
}

void GroupCutter::CutFirings(uint64_t room, std::vector<Chunk>& chunks) {
  const auto& first = static_cast<const Waiting&>(*firings_.Next());
  const bool any_length = first.unstaged && small_.empty() && room > options_.group_bytes;
  uint64_t shared = any_length ? std::max(options_.group_bytes, room / 4) : options_.group_bytes;
  uint64_t bytes =
      any_length ? Evenly(first.left(), room) : std::min(first.left(), options_.group_bytes);
  Take(firings_, bytes, chunks);
  while (!firings_.empty() && chunks.size() < std::min(options_.group_chunks, kMaxGroupFirings)) {
    const auto& next = static_cast<const Waiting&>(*firings_.Next());
    bytes += next.left();
    if (!next.unstaged) shared = options_.group_bytes;
    if (next.offset > 0 || bytes > shared) break;
    Take(firings_, next.left(), chunks);
  }
}

std::vector<Chunk> GroupCutter::Cut(uint64_t room) {
  home_.Check();
  const bool others = !small_.empty() || !large_.empty();
  was_firing_ = !firings_.empty() && !(was_firing_ && others);
  std::vector<Chunk> chunks;
  if (was_firing_) {
    CutFirings(room, chunks);
  } else {
    CutOthers(room, chunks);
  }
  // What is left has waited already: it stays as old as the oldest was.
  if (index_.empty()) since_ = absl::InfiniteFuture();
  return chunks;
}

void GroupCutter::CutOthers(uint64_t room, std::vector<Chunk>& chunks) {
  uint64_t staged = options_.group_bytes;
  const uint64_t kept = large_.empty() ? 0 : options_.chunk_bytes;
  const size_t small_chunks = options_.group_chunks - (large_.empty() ? 0 : 1);
  while (!small_.empty() && chunks.size() < small_chunks) {
    const uint64_t bytes = small_.Next()->left();
    if (bytes + kept > staged) break;
    staged -= bytes;
    Take(small_, bytes, chunks);
  }
  // Small ones count as staged: what they took of the one bound they took of the other.
  room = chunks.empty() && room > staged ? Evenly(bytes_, room) : staged;
  while (!large_.empty() && room > 0 && chunks.size() < options_.group_chunks) {
    const auto& next = static_cast<const Waiting&>(*large_.Next());
    uint64_t bytes = options_.chunk_bytes;
    if (!next.unstaged) {
      bytes = std::min({next.left(), bytes, staged, room});
      staged -= bytes;
    } else if (next.left() < 2 * bytes) {
      bytes = next.left();  // what would be left, or is, may be too small to go alone
    }
    if (bytes == 0 || (next.unstaged && room < options_.chunk_bytes)) break;
    room -= std::min(room, bytes);
    Take(large_, bytes, chunks);
  }
}

}  // namespace ferry
