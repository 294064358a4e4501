// SPDX-License-Identifier: Apache-2.0
// Convoys: consecutive transfers of one batch that differ only in key and place in memory, which
// the engine carries as one transfer. A convoy has the id of its first transfer, a key that packs
// the keys of all its transfers (MatchKey::count), and a layout with the bytes of all, one behind
// the other. A convoy of sends is matched by a convoy of receives with the same keys in the same
// order. Anything else that happens to one of its transfers takes the convoy apart first
// (transfer/rules/convoy_rules.h).
//
// Example: a client sends 100 blocks of 4 KiB, keys "b0" to "b99", transfers 7 to 106. They are one
// convoy of id 7, key "\2b0\2b1...\3b99" and 409,600 bytes. If the other end posts "b0" to "b99"
// too, the convoy is matched, launched and over at once; if it posts "b5" alone, the convoy becomes
// 100 transfers, of which one is matched.
//
// Pure functions of plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "transfer/types.h"

namespace ferry {

inline constexpr size_t kMostInConvoy = 128;
// Fewer transfers cost as much one by one as in a convoy.
inline constexpr size_t kLeastInConvoy = 8;
// Most bytes of one transfer of a convoy: more cost little beside the copy of the bytes.
inline constexpr uint64_t kMostMemberBytes = uint64_t{256} << 10;
// Most bytes of a convoy. Its first transfer is over only when all of it is, so this bounds that
// wait.
inline constexpr uint64_t kMostConvoyBytes = uint64_t{8} << 20;

// How many of the first `specs` (not empty) can go as one convoy: 1, or at least kLeastInConvoy.
size_t ConvoyLength(absl::Span<const TransferSpec> specs);

// The convoy of `members`, all of which can go as one.
TransferSpec MakeConvoy(absl::Span<const TransferSpec> members);

// Iterates over the keys of a convoy's key, which must be well formed: made here, or checked by
// KeysOf.
class PackedKeys {
 public:
  explicit PackedKeys(const MatchKey& convoy) : packed_(convoy.key) {}
  bool AtEnd() const { return at_ == packed_.size(); }
  // The present key; refers to the convoy's key.
  absl::string_view key() const { return KeyAt(packed_, at_); }
  // Where the present key is within the packed key.
  size_t at() const { return at_; }
  void Next() { at_ += 1 + key().size(); }
  static absl::string_view KeyAt(absl::string_view packed, size_t at) {
    return packed.substr(at + 1, static_cast<unsigned char>(packed[at]));
  }

 private:
  absl::string_view packed_;
  size_t at_ = 0;
};

// The keys in a convoy's key; they refer to it. Empty if the key does not have MatchKey::count
// well-formed keys: a peer may send anything.
std::vector<absl::string_view> KeysOf(const MatchKey& convoy);

// The key of transfer `place` of the convoy.
MatchKey MemberKey(const MatchKey& convoy, size_t place);

// The layout of transfer `place` of a convoy of `count` transfers.
Layout MemberLayout(const Layout& convoy, size_t place, size_t count);

}  // namespace ferry
