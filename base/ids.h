// SPDX-License-Identifier: Apache-2.0
// The ids of Ferry as types that do not mix. All are values, usable from any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"

namespace ferry {

// An integer that can be compared only with ids of its own kind. `Tag::kPrefix` begins its text.
template <typename Tag, typename Value = uint64_t>
class Id {
 public:
  using ValueType = Value;
  constexpr Id() = default;
  constexpr explicit Id(Value value) : value_(value) {}
  constexpr Value value() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;
  std::string ToString() const {
    if constexpr (requires { Tag::kHex; }) {
      return absl::StrCat(Tag::kPrefix, absl::Hex(value_, absl::kZeroPad16));
    } else {
      return absl::StrCat(Tag::kPrefix, value_);
    }
  }

  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.ToString(); }

 private:
  Value value_ = 0;
};

// A device anywhere in the cluster: a GPU or a host device. Assigned by membership.
struct GlobalDeviceTag {
  static constexpr char kPrefix[] = "device ";
};
using GlobalDeviceId = Id<GlobalDeviceTag>;

// A daemon, by the number that this daemon has given to its node's name. A name keeps its number
// for ever, even if the node leaves and comes back, and no other name gets it. Local to one daemon.
struct PeerTag {
  static constexpr char kPrefix[] = "peer ";
};
using PeerId = Id<PeerTag, uint32_t>;

// One life of a daemon: a random number, new at every start.
struct IncarnationTag {
  static constexpr char kPrefix[] = "incarnation ";
  static constexpr bool kHex = true;  // random: all digits matter, none of them as a number
};
using Incarnation = Id<IncarnationTag>;

// A client process of this daemon. Ids count up and start again after kMostSessionIds. By then
// nothing refers to the former session of the same id (a tombstone lives for ten minutes).
struct SessionTag {
  static constexpr char kPrefix[] = "session ";
};
using SessionId = Id<SessionTag, uint32_t>;

// One allocation. Ids count up over the whole daemon and are never used again, so a stale one is
// always noticed.
struct ArenaTag {
  static constexpr char kPrefix[] = "arena ";
};
using ArenaId = Id<ArenaTag>;

// One posted half of a transfer, unique in the daemon: the session's id in the upper 24 bits; in
// the lower 40 the session's own counter, which is the id that clients see.
struct TransferTag {
  static constexpr char kPrefix[] = "transfer ";
};
using TransferId = Id<TransferTag>;

inline constexpr int kTransferSequenceBits = 40;
inline constexpr uint32_t kMostSessionIds = (uint32_t{1} << (64 - kTransferSequenceBits)) - 1;
constexpr TransferId MakeTransferId(SessionId session, uint64_t sequence) {
  return TransferId((uint64_t{session.value()} << kTransferSequenceBits) | sequence);
}
constexpr SessionId SessionOf(TransferId id) {
  return SessionId(static_cast<uint32_t>(id.value() >> kTransferSequenceBits));
}
constexpr uint64_t SequenceOf(TransferId id) {
  return id.value() & ((uint64_t{1} << kTransferSequenceBits) - 1);
}

}  // namespace ferry
