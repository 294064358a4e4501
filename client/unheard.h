// SPDX-License-Identifier: Apache-2.0
// Transfers of one life of the session whose endings no watcher has heard: when the daemon is lost,
// nobody else can tell it of them. Any thread; owned by the connection. Invariant: a transfer that
// was posted is here until it is heard or taken, however its answer and its ending race.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "client/timelines.h"

namespace ferry::client {

class Unheard {
 public:
  // `count` transfers with ids and values in a row.
  struct Batch {
    uint64_t first_id = 0;
    uint64_t count = 0;
    uint32_t timeline = 0;
    uint64_t first_value = 0;
  };

  explicit Unheard(uint64_t last_id) : last_id_(last_id) {}

  void Posted(const Batch& batch);
  // A watcher is about to be told. False if it is too late for that: Finish() came first.
  bool Heard(uint64_t id);
  // Without a watcher what is over is of no use here. Looks only when enough has gathered.
  void ForgetOver(const Timelines& timelines);
  // Of a batch that is over and that no watcher will be told of.
  void Forget(uint64_t first_id, uint64_t count);
  // The life is over. The highest id that was ever seen, in it or before.
  uint64_t Finish();
  // All that is left, by id.
  std::vector<Batch> TakeAll();

 private:
  static constexpr size_t kWorthASweep = 256;

  void Remove(uint64_t id);  // under mutex_

  std::mutex mutex_;                   // guards what follows
  std::map<uint64_t, Batch> batches_;  // by first id
  std::set<uint64_t> early_;           // heard before they were posted
  size_t sweep_at_ = kWorthASweep;
  uint64_t last_id_;
  bool finished_ = false;
};

}  // namespace ferry::client
