// SPDX-License-Identifier: Apache-2.0
// What streams of this process were told to store into words of timelines and have not stored yet,
// each with its place in the order in which streams were told things: a stream makes a store only
// behind the waits it was told of before (ParkedStreams). One a process; any thread. Invariant: no
// entry outlives its word.
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
    uint64_t place = 0;  // in the order of ParkedStreams::NextPlace
  };

  static QueuedStores& Get();

  // `stream` was told, just now, to set `word` to `value`.
  void Add(const uint64_t* word, uint64_t value, const ParkedStreams::Stream& stream);
  // Those that bring `word` to `value`; none if it is there.
  std::vector<Store> Of(const uint64_t* word, uint64_t value);
  // Words from `begin` on, `bytes` long, mean something else from here on, or nothing.
  void Forget(const void* begin, size_t bytes);
  // Words may begin anew from here on: what was stored is known now or never.
  void ForgetMade();

 private:
  QueuedStores() = default;

  std::mutex mutex_;  // guards what follows
  std::map<const uint64_t*, std::vector<Store>> stores_;
};

}  // namespace ferry::client
