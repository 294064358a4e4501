// SPDX-License-Identifier: Apache-2.0
// The nouns of a transfer as plain data. No threads, no proto, no devices. The bounds named here
// are enforced at the door (daemon/rpc/convert) and assumed further in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "transfer/layout.h"

namespace ferry {

// XLA's element types, numbered as in ferry.v1.DataType.
enum class DataType : uint8_t {
  kUnspecified = 0,
  kPred,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
  kF8E4M3FN,
  kF8E5M2,
  kF8E8M0FNU,
  kF4E2M1FN,
};
inline constexpr int kDataTypes = 20;
// "BF16"; "unspecified" for 0.
absl::string_view DataTypeName(DataType type);
// Bits of one element; 0 for kUnspecified.
int DataTypeBits(DataType type);

// Logical shape, at most 8 dimensions. `given` false means not said.
struct Shape {
  bool given = false;
  absl::InlinedVector<int64_t, 4> dims;
  bool operator==(const Shape& other) const { return given == other.given && dims == other.dims; }
  // "[128,4096]"; "unspecified".
  std::string ToString() const;
};

// Numbered as in ferry.v1.Route.
enum class Route : uint8_t { kUnspecified = 0, kLocal, kMapped, kUcx, kNccl, kTcp };
inline constexpr int kRoutes = 6;
absl::string_view RouteName(Route route);  // "local", ...; "any" for kUnspecified
// Each end runs a half of a launch, of which they agree by Go.
inline bool TwoSided(Route route) { return route == Route::kUcx || route == Route::kTcp; }
// Firings of what is prepared are agreed on by Go, one by one; on the other routes the lanes fire.
inline bool FiredByGo(Route route) { return route == Route::kUcx; }

inline constexpr size_t kMaxDomainBytes = 32;
inline constexpr size_t kMaxKeyBytes = 64;
inline constexpr size_t kMaxBatchTransfers = 4096;
// Of all layouts of a batch: what control and lanes do for it is as much.
inline constexpr size_t kMaxBatchRanges = kMaxRanges;
inline constexpr size_t kMaxBatchRuns = kMaxBlocks;
inline constexpr int32_t kMaxPriority = 100;  // and at least -100

// What a send and a receive must share to be one transfer.
struct MatchKey {
  std::string domain;
  GlobalDeviceId source;
  GlobalDeviceId destination;
  std::string key;
  // Transfers that the key is of. More than one: `key` packs the keys of a convoy
  // (transfer/convoy.h).
  uint32_t count = 1;
  bool operator==(const MatchKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const MatchKey& k) {
    return H::combine(std::move(h), k.key, k.source, k.destination, k.domain);
  }
};
// For people: "key 'layers.0.wq' from device 0 to device 2"; keys that are not printable in hex,
// 8-byte ones as PJRT's int64. Of a convoy "128 keys, 'b0' to 'b127', from device 0 to device 2".
// Never shows the domain.
std::string Describe(const MatchKey& key);
// The same without the devices.
std::string DescribeKey(const MatchKey& key);
std::string PrintableKey(absl::string_view key);
// Sixteen hex digits that name a domain to people. A daemon's domains are keyed hashes of their
// names (daemon/domain_tag.h), so who knows a name does not know its digits.
std::string DomainFingerprint(absl::string_view domain);

// Slots of a link page: prepared send batches that a daemon can have on `mapped` to one peer.
inline constexpr uint32_t kPreparedSlots = 1024;

enum class Side : uint8_t { kSend, kReceive };

// What names a transfer at both its ends, on every daemon and in every version, without telling the
// domain; sixteen hex digits for people. Not 0.
uint64_t MatchFingerprint(const MatchKey& key);

// One posted half, already checked against its session: ids known, extents inside their arenas,
// bytes, type and shape consistent.
struct TransferSpec {
  Side side = Side::kSend;
  MatchKey key;
  Layout layout;
  uint64_t bytes = 0;
  DataType data_type = DataType::kUnspecified;
  Shape shape;
  Route route = Route::kUnspecified;  // insisted on
  int32_t priority = 0;               // of a pair the receive's counts, unless it is 0
  absl::Time deadline = absl::InfiniteFuture();
  // 'defined' counter and value; `defined` says that it is reached already. Value 0: whoever posted
  // it will say so (TransferEngine::OnDefined).
  bool defined = true;
  uint32_t defined_timeline = 0;
  uint64_t defined_value = 0;
  // Stays after it is matched, and is fired again and again until it is ended. Its batch is one:
  // when one of its transfers ends, the others do.
  bool prepared = false;
  // While this transfer is in flight here, the other half may come also if one end drains or both
  // do: they are parts of one thing. 0: none.
  TransferId continues;
  // The 'over' counter and the value that means over; 0: a job's, of which no counter says anything
  // (prepared: the number of the session's prepared batch). Carried for the session, not used by
  // the core.
  uint32_t over_timeline = 0;
  uint64_t over_value = 0;
  // What the daemon keeps for it, as its session counts it.
  uint64_t kept = 0;
  // Of its client: at a peer the offers of one user have a share.
  uint32_t uid = 0;
};

}  // namespace ferry
