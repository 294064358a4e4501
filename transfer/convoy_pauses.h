// SPDX-License-Identifier: Apache-2.0
// ConvoyPauses remembers between which devices no convoy is made for a while: their clients cut
// their batches differently, or the launch of a convoy was refused. Pure: time is an argument.
// Home: control. Owner: TransferEngine.
#pragma once

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/group.h"
#include "transfer/types.h"

namespace ferry {

class ConvoyPauses {
 public:
  // Between the key's devices no convoy is made until `now + pause`, or until a later time that was
  // said before.
  void Pause(absl::Time now, const MatchKey& key, absl::Duration pause) {
    home_.Check();
    absl::Time& until = until_.try_emplace(CliqueOf(key), now).first->second;
    until = std::max(until, now + pause);
  }
  bool Contains(absl::Time now, const MatchKey& key) const {
    const auto paused = until_.find(CliqueOf(key));
    return paused != until_.end() && now < paused->second;
  }

 private:
  absl::flat_hash_map<Clique, absl::Time> until_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
