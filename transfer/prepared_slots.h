// SPDX-License-Identifier: Apache-2.0
// The slots of our link page to one peer, of which each prepared batch with a send to that peer has
// one as long as such a send is in flight. Pure. Home: control (owned by a Peer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/home.h"
#include "transfer/types.h"

namespace ferry {

class PreparedSlots {
 public:
  // The slot of a batch for one more of its sends; 0: all kPreparedSlots are taken.
  uint32_t Take(TransferId batch) {
    home_.Check();
    const auto [entry, first] = batches_.try_emplace(batch);
    Use& use = entry->second;
    if (first) {
      if (!returned_.empty()) {
        use.slot = returned_.back();
        returned_.pop_back();
      } else if (given_ < kPreparedSlots) {
        use.slot = ++given_;
      } else {
        batches_.erase(entry);
        return 0;
      }
    }
    ++use.sends;
    return use.slot;
  }
  // One send of the batch, which has a slot, is over.
  void Return(TransferId batch) {
    home_.Check();
    const auto entry = batches_.find(batch);
    if (--entry->second.sends > 0) return;
    returned_.push_back(entry->second.slot);
    batches_.erase(entry);
  }

 private:
  struct Use {
    uint32_t slot = 0;
    size_t sends = 0;
  };
  absl::flat_hash_map<TransferId, Use> batches_;  // by the batch's first transfer
  std::vector<uint32_t> returned_;
  uint32_t given_ = 0;  // the highest slot that was ever taken
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
