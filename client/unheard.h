// SPDX-License-Identifier: Apache-2.0
// Transfers of one life of the session of whose endings no watcher was told: when the daemon is
// lost, nobody else can tell a watcher of them. Any thread; owned by the connection. Invariant: a
// posted transfer is here until a watcher is told of it or it is taken, however the answer to its
// post and its ending race.
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
  // `count` transfers with consecutive ids and values.
  struct Batch {
    uint64_t first_id = 0;
    uint64_t count = 0;
    uint32_t timeline = 0;
    uint64_t first_value = 0;
  };

  explicit Unheard(uint64_t last_id) : last_id_(last_id) {}

  void Posted(const Batch& batch);
  // A watcher is about to be told of `id`. False: Finish() came first, and it must not be told.
  bool Heard(uint64_t id);
  // Drops what is over, which without a watcher is of no use. Does nothing until enough has
  // gathered.
  void ForgetOver(const Timelines& timelines);
  // Drops a batch that is over and of which no watcher will be told.
  void Forget(uint64_t first_id, uint64_t count);
  // The life is over. Returns the highest id that was ever seen, in this life or before.
  uint64_t Finish();
  // Takes all that is left, by id.
  std::vector<Batch> TakeAll();

 private:
  static constexpr size_t kWorthASweep = 256;

  void Remove(uint64_t id);  // under mutex_

  std::mutex mutex_;                   // guards what follows
  std::map<uint64_t, Batch> batches_;  // by first id
  std::set<uint64_t> early_;           // ids whose ending came before the answer to their post
  size_t sweep_at_ = kWorthASweep;
  uint64_t last_id_;
  bool finished_ = false;
};

}  // namespace ferry::client
