// SPDX-License-Identifier: Apache-2.0
#include "client/parked_streams.h"

#include <stdlib.h>

#include <algorithm>
#include <set>

namespace ferry::client {
namespace {

// The word as the driver reads it.
uint32_t Connections() {
  const char* text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (text == nullptr || *text == '\0') return 8;
  return static_cast<uint32_t>(std::clamp(atoi(text), 1, 32));
}

bool Reached(const ParkedStreams::Wait& wait) {
  return __atomic_load_n(wait.word, __ATOMIC_ACQUIRE) >= wait.value;
}

bool IsWithin(const void* word, const void* begin, size_t bytes) {
  return reinterpret_cast<uintptr_t>(word) - reinterpret_cast<uintptr_t>(begin) < bytes;
}

}  // namespace

ParkedStreams& ParkedStreams::Get() {
  static ParkedStreams* const all = new ParkedStreams;  // handles may outlive every static
  return *all;
}

ParkedStreams::ParkedStreams() : connections_(Connections()) {}

void ParkedStreams::Sweep() {
  waits_.erase(std::remove_if(waits_.begin(), waits_.end(), Reached), waits_.end());
}

size_t ParkedStreams::Streams() const {
  std::set<Stream> streams;
  for (const Wait& wait : waits_) streams.insert(wait.stream);
  return streams.size();
}

bool ParkedStreams::Enter(Wait wait) {
  const uint32_t most = connections_ > 2 ? connections_ - 2 : 0;
  std::lock_guard lock(mutex_);
  Sweep();
  const bool waits_already = std::any_of(
      waits_.begin(), waits_.end(), [&](const Wait& other) { return other.stream == wait.stream; });
  if (!waits_already && Streams() >= most) return false;
  wait.place = NextPlace();
  waits_.push_back(std::move(wait));
  ++stream_waits_;
  return true;
}

void ParkedStreams::Leave(const Wait& wait) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(waits_.begin(), waits_.end(), [&](const Wait& other) {
    return other.stream == wait.stream && other.word == wait.word && other.value == wait.value;
  });
  if (found == waits_.end()) return;
  waits_.erase(found);
  --stream_waits_;
}

std::vector<ParkedStreams::Wait> ParkedStreams::Before(const Stream& stream, uint64_t place) {
  std::lock_guard lock(mutex_);
  Sweep();
  std::vector<Wait> before;
  for (const Wait& wait : waits_) {
    if (wait.stream == stream && wait.place < place) before.push_back(wait);
  }
  return before;
}

std::vector<ParkedStreams::Wait> ParkedStreams::On(const void* begin, size_t bytes) {
  std::lock_guard lock(mutex_);
  Sweep();
  std::vector<Wait> waits;
  for (const Wait& wait : waits_) {
    if (IsWithin(wait.word, begin, bytes)) waits.push_back(wait);
  }
  return waits;
}

void ParkedStreams::Forget(const void* begin, size_t bytes) {
  std::lock_guard lock(mutex_);
  waits_.erase(std::remove_if(waits_.begin(), waits_.end(),
                              [&](const Wait& wait) { return IsWithin(wait.word, begin, bytes); }),
               waits_.end());
}

void ParkedStreams::ForgetReached() {
  std::lock_guard lock(mutex_);
  Sweep();
}

ferry_stream_counts ParkedStreams::Counts() {
  ferry_stream_counts counts{};
  counts.struct_size = sizeof(counts);
  counts.connections = connections_;
  counts.parked_most = connections_ > 2 ? connections_ - 2 : 0;
  counts.stream_waits = stream_waits_;
  counts.host_waits = host_waits_;
  counts.would_deadlock = would_deadlock_;
  std::lock_guard lock(mutex_);
  Sweep();
  counts.parked = static_cast<uint32_t>(Streams());
  return counts;
}

}  // namespace ferry::client
