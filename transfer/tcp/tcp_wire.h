// SPDX-License-Identifier: Apache-2.0
// What two lanes say to each other on the connections of route `tcp`. Numbers are little-endian.
// Pure; any thread.
//
// A connection goes to the peer's own port, like the link of the two daemons, and begins with a
// preamble of the daemon that dials, which proves that it knows the key of that link. The other one
// answers with a proof of its own (32 bytes), and from then on both send messages:
//
//   header   kind, number of entries (1 to kMostEntries)
//   entries  a tag, and what the kind says of it
//   bytes    only of kBytes: those of the first entry, then of the second, ...
//
// A message has at most kMessageBytes bytes, so that what is small never waits behind what is
// large. An example: the receives of two transfers, tags 7 and 8, of 3 and 5 bytes, were matched;
// their source sends
//   1 2 | 7 0 3 | 8 0 5 | "abcdefgh"
// and the destination has "abc" and "defgh".
//
// A prepared transfer is announced (kArmed) by its source. Then for each firing the destination
// says that it wants it (kWanted), the source sends its bytes once its own end wants it too, and
// the destination says that they have arrived (kArrived).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hmac.h"
#include "base/ids.h"

namespace ferry {

static_assert(std::endian::native == std::endian::little);

enum class TcpKind : uint32_t { kBytes = 1, kArmed = 2, kWanted = 3, kArrived = 4 };
struct TcpHeader {
  uint32_t kind = 0;
  uint32_t entries = 0;
};
// The tag is the launch's (Launch::tag): it names a transfer among all of the two daemons.
struct TcpEntry {
  uint64_t tag = 0;
  uint64_t at = 0;  // kBytes: where in the transfer's bytes these begin; kWanted, kArrived: firing
  uint64_t bytes = 0;  // kBytes: how many, 0 only of a prepared transfer that has none
};
static_assert(sizeof(TcpHeader) == 8 && sizeof(TcpEntry) == 24);

inline constexpr size_t kTcpMostEntries = 512;
inline constexpr size_t kTcpMessageBytes = size_t{1} << 20;

// A lane pair has several connections, which belong together: when one of them ends all do.
inline constexpr uint32_t kTcpMostConnections = 16;
inline constexpr size_t kTcpLinkIdBytes = 16;

struct TcpPreamble {
  std::string link_id;  // TcpLinkId of the link's key
  GlobalDeviceId from;  // of the daemon that dials
  GlobalDeviceId to;    // of the daemon that is dialled
  uint64_t serial = 0;  // of the lane pair's set of connections; grows, so that none comes twice
  uint32_t index = 0;   // of this connection in the set
  uint32_t count = 0;   // 2 to kTcpMostConnections
  bool operator==(const TcpPreamble&) const = default;
};

inline constexpr absl::string_view kTcpMagic = "FERRYTC1";
inline constexpr size_t kTcpPreambleBytes = 8 + kTcpLinkIdBytes + 8 + 8 + 8 + 4 + 4 + kHmacBytes;

// Names a link without telling its key.
std::string TcpLinkId(absl::string_view key);
// kTcpPreambleBytes bytes.
std::string EncodeTcpPreamble(const TcpPreamble& preamble, absl::string_view key);
// Of kTcpPreambleBytes bytes; nothing is believed of it before ProvesTcp.
absl::StatusOr<TcpPreamble> DecodeTcpPreamble(absl::string_view bytes);
// Whether who encoded it knew the key.
bool ProvesTcp(absl::string_view bytes, absl::string_view key);
// What the daemon that is dialled answers, kHmacBytes bytes.
std::string TcpAnswer(absl::string_view preamble_bytes, absl::string_view key);

}  // namespace ferry
