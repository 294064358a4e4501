// SPDX-License-Identifier: Apache-2.0
// Stores into words of timelines that streams of this process were told to make and have not made.
// Each has its place in the order in which streams were told things: a stream makes a store only
// behind the waits that it was told of before (ParkedStreams). One a process; any thread.
// Invariant: no entry outlives its word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "client/parked_streams.h"

namespace ferry::client {

class QueuedStores {
 public:
  struct Store {
    uint64_t value = 0;
    ParkedStreams::Stream stream;
    uint64_t place = 0;  // as ParkedStreams::NextPlace gave it
  };

  static QueuedStores& Get();

  // `stream` was just told to set `word` to `value`.
  void Add(const uint64_t* word, uint64_t value, const ParkedStreams::Stream& stream);
  // The queued stores that bring `word` to `value` or beyond; none if the word is there already.
  std::vector<Store> Of(const uint64_t* word, uint64_t value);
  // The words in [begin, begin + bytes) get another meaning, or none: their stores are dropped.
  void Forget(const void* begin, size_t bytes);
  // Words may begin anew after this: drops the stores that were made, which cannot be told later.
  void ForgetMade();

 private:
  QueuedStores() = default;

  std::mutex mutex_;  // guards what follows
  std::map<const uint64_t*, std::vector<Store>> stores_;
};

}  // namespace ferry::client
