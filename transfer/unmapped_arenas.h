// SPDX-License-Identifier: Apache-2.0
// Arenas of one peer that `mapped` could not reach from a device. Transfers of that pair of devices
// take another route for these arenas. After 10 s one transfer tries `mapped` again, then after
// twice as long each time, since memory comes free and GPUs are given back. Pure. Home: control;
// owner: TransferEngine.
#pragma once

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/clique/group.h"
#include "transfer/layout.h"

namespace ferry {

class UnmappedArenas {
 public:
  static constexpr absl::Duration kTriedAgainAfter = absl::Seconds(10);
  static constexpr absl::Duration kLongest = absl::Minutes(10);
  // The most arenas of a pair of devices, enough for what there is at once. Beyond it the pair's
  // list is cleared, and all are tried again.
  static constexpr size_t kMost = 1024;

  bool Contains(absl::Time now, const Clique& clique, const Layout& source) const;
  // OnTry(): `mapped` is tried with the arenas of `source`. Then it either did not work (OnRefused)
  // or did (OnReached).
  void OnTry(absl::Time now, const Clique& clique, const Layout& source);
  void OnRefused(absl::Time now, const Clique& clique, const Layout& source, std::string why);
  void OnReached(const Clique& clique, const Layout& source);
  void Clear() {
    home_.Check();
    pairs_.clear();
  }

  // When the arena is tried again, and how long it was left alone for that.
  struct Arena {
    absl::Time again;
    absl::Duration wait;
  };
  struct Pair {
    absl::flat_hash_map<ArenaId, Arena> arenas;
    std::string why;  // the error of the last refusal
  };
  // Null if the pair has no such arena. Valid until the next change.
  const Pair* Find(const Clique& clique) const;

 private:
  absl::flat_hash_map<Clique, Pair> pairs_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
