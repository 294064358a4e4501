// SPDX-License-Identifier: Apache-2.0
// Arenas of one peer that `mapped` could not reach: a pair of devices does without it for them, but
// for one transfer after 10 s, and again after twice as long each time, since memory comes free and
// GPUs are given back. Pure. Home:
// control; owner: TransferEngine.
#pragma once

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "transfer/group.h"
#include "transfer/layout.h"

namespace ferry {

class UnmappedArenas {
 public:
  static constexpr absl::Duration kTriedAgainAfter = absl::Seconds(10);
  static constexpr absl::Duration kLongest = absl::Minutes(10);
  // Of a pair of devices, enough for what there is at once; more, and all are tried again.
  static constexpr size_t kMost = 1024;

  bool Contains(absl::Time now, const Clique& clique, const Layout& source) const;
  // `mapped` is tried with what `source` is in; then it was found not to work, or to work.
  void OnTry(absl::Time now, const Clique& clique, const Layout& source);
  void OnRefused(absl::Time now, const Clique& clique, const Layout& source, std::string why);
  void OnReached(const Clique& clique, const Layout& source);
  void Clear() { pairs_.clear(); }

  struct Arena {
    absl::Time again;
    absl::Duration wait;
  };
  struct Pair {
    absl::flat_hash_map<ArenaId, Arena> arenas;
    std::string why;  // of the last one
  };
  // Null if there is none. Valid until the next change.
  const Pair* Find(const Clique& clique) const;

 private:
  absl::flat_hash_map<Clique, Pair> pairs_;
};

}  // namespace ferry
