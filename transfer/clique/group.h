// SPDX-License-Identifier: Apache-2.0
// The nouns of groups, as plain data: a clique is the two devices that share a communicator, a
// group is what both launch together, as a list of chunks that is the same at both ends.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transfer/types.h"

namespace ferry {

// Two devices of two daemons, sorted. Both directions share one communicator. Its leader is the
// daemon that owns `low`, its follower the one that owns `high`.
struct Clique {
  GlobalDeviceId low;
  GlobalDeviceId high;
  constexpr auto operator<=>(const Clique&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Clique& c) {
    return H::combine(std::move(h), c.low, c.high);
  }
};
inline Clique CliqueOf(GlobalDeviceId a, GlobalDeviceId b) {
  return {std::min(a, b), std::max(a, b)};
}
inline Clique CliqueOf(const MatchKey& key) { return CliqueOf(key.source, key.destination); }
inline std::string Describe(const Clique& clique) {
  return absl::StrCat("the clique of devices ", clique.low.value(), " and ", clique.high.value());
}

// Names a pair, or a bundle, within its clique. Both daemons make the same name. A bundle is all
// prepared transfers between the same two prepared batches; a firing of a bundle goes into groups
// as one transfer would, with the bytes of all one behind the other in the order of the sends' ids.
struct PairName {
  bool to_low = false;  // the destination is the clique's low device
  // Of a pair: the source daemon's id of the send. Of a bundle: the destination daemon's id of the
  // first transfer of the receives' batch.
  TransferId transfer;
  uint32_t slot = 0;  // of a pair 0; of a bundle Offer::slot of its sends, never 0
  constexpr auto operator<=>(const PairName&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const PairName& name) {
    return H::combine(std::move(h), name.to_low, name.transfer, name.slot);
  }
};

// The bytes [offset, offset + bytes) of a transfer, counted over its ranges in their order; or of a
// firing.
struct Chunk {
  PairName pair;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const Chunk&) const = default;
};

// The most chunks of a group: no leader makes, and no follower takes, a group with more.
inline constexpr size_t kMaxGroupChunks = 1024;
// The most firings of a group. A group that has firings has no other chunks.
inline constexpr size_t kMaxGroupFirings = 16;

}  // namespace ferry
