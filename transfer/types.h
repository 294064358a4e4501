// SPDX-License-Identifier: Apache-2.0
// The nouns of a transfer as plain data. No threads, no proto, no devices. The bounds here are
// checked where data enters the daemon (daemon/rpc/convert) and relied on further in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "transfer/layout.h"
#include "transfer/route.h"

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
// The name, such as "BF16"; "unspecified" for kUnspecified.
absl::string_view DataTypeName(DataType type);
// Bits of one element; 0 for kUnspecified.
int DataTypeBits(DataType type);

// Logical shape, at most 8 dimensions. `given` false: the client gave none.
struct Shape {
  bool given = false;
  absl::InlinedVector<int64_t, 4> dims;
  bool operator==(const Shape& other) const { return given == other.given && dims == other.dims; }
  // "[128,4096]"; "unspecified".
  std::string ToString() const;
};

absl::string_view RouteName(Route route);  // "local", ...; "any" for kUnspecified

inline constexpr size_t kMaxDomainBytes = 32;
inline constexpr size_t kMaxKeyBytes = 64;
inline constexpr size_t kMaxBatchTransfers = 4096;
// Bounds on all layouts of a batch together: they bound what control and lanes do for it.
inline constexpr size_t kMaxBatchRanges = kMaxRanges;
inline constexpr size_t kMaxBatchStretches = kMaxBlocks;
inline constexpr int32_t kMaxPriority = 100;  // the lowest is -kMaxPriority

// What a send and a receive must share to be one transfer.
struct MatchKey {
  std::string domain;
  GlobalDeviceId source;
  GlobalDeviceId destination;
  std::string key;
  // Number of transfers that the key names. If more than 1, `key` packs the keys of a convoy
  // (transfer/convoy.h).
  uint32_t count = 1;
  bool operator==(const MatchKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const MatchKey& k) {
    return H::combine(std::move(h), k.key, k.source, k.destination, k.domain);
  }
};
// A key as text for people: "key 'layers.0.wq' from device 0 to device 2". A key that is not
// printable is shown in hexadecimal, one of 8 bytes as a big-endian number without a sign. A
// convoy: "128 keys, 'b0' to 'b127', from device 0 to device 2". Never shows the domain.
std::string Describe(const MatchKey& key);
// The same without the devices.
std::string DescribeKey(const MatchKey& key);
std::string PrintableKey(absl::string_view key);
// Sixteen hexadecimal digits that name a domain for people. A daemon's domains are keyed hashes of
// their names (daemon/domain_tag.h), so somebody who knows a name does not know its digits.
std::string DomainFingerprint(absl::string_view domain);

// Slots of a link page: the prepared send batches that a daemon can have on `mapped` and `nccl` to
// one peer.
inline constexpr uint32_t kPreparedSlots = 1024;

enum class Side : uint8_t { kSend, kReceive };

// Names a transfer at both its ends, on every daemon and in every version, without giving the
// domain away; shown as sixteen hexadecimal digits. Not 0.
uint64_t MatchFingerprint(const MatchKey& key);

// One posted half, checked against its session: its ids are known, its extents are inside their
// arenas, and its bytes, type and shape are consistent.
struct TransferSpec {
  Side side = Side::kSend;
  MatchKey key;
  Layout layout;
  uint64_t bytes = 0;
  DataType data_type = DataType::kUnspecified;
  Shape shape;
  Route route = Route::kUnspecified;  // the route that must be taken, if any
  int32_t priority = 0;               // of a pair the receive's counts, unless it is 0
  absl::Time deadline = absl::InfiniteFuture();
  // The 'defined' counter and value that the half waits for; `defined` says that the value is
  // reached. With value 0 the poster says later that the data is defined
  // (TransferEngine::OnDefined).
  bool defined = true;
  uint32_t defined_timeline = 0;
  uint64_t defined_value = 0;
  // Prepared: the half stays after it is matched, and is fired again and again until it is ended.
  // When one half of its prepared batch ends, all of the batch do.
  bool prepared = false;
  // Receives: a job waits for this half alone. On the one-sided routes its end is told of when its
  // bytes have come, and not together with that of transfers behind it (CopyTransport::kPromptBytes
  // says of how many bytes on).
  bool prompt = false;
  // Id of a transfer that this half belongs to, such as the file's first chunk. While that transfer
  // is in flight here, drains of either end accept this half, and it waits for its partner. 0:
  // none.
  TransferId continues;
  // The 'over' counter, and its value that means over. Value 0: the transfer is a job's, and no
  // counter tells of it; or it is prepared, and over_timeline is the number of the session's
  // prepared batch. Carried for the session; the core does not use them.
  uint32_t over_timeline = 0;
  uint64_t over_value = 0;
  // Bytes that the daemon keeps for this half, as its session counts them.
  uint64_t record_bytes = 0;
  // The uid of its client. At a peer each user has a share of the offers.
  uint32_t uid = 0;
};

}  // namespace ferry
