// SPDX-License-Identifier: Apache-2.0
// What two lanes say to each other on the connections of route `tcp`. Numbers are little-endian.
// Pure; any thread.
//
// A connection goes to the peer's own port, as the link of the two daemons does. It begins with a
// preamble of the dialling daemon, which proves that this knows the link's secret. The other daemon
// answers with a proof of its own (32 bytes). From then on both send messages:
//
//   header   kind, number of entries (1 to kMostEntries)
//   entries  a tag, and what the kind says of it
//   bytes    kBytes only: those of the first entry, then those of the second, ...
//
// A message has at most kTcpMessageBytes bytes, so that small transfers never wait behind large
// ones. Example: the receives of two transfers, tags 7 and 8, of 3 and 5 bytes, were matched. Their
// source sends
//   1 2 | 7 0 3 | 8 0 5 | "abcdefgh"
// and the destination has "abc" and "defgh".
//
// The source of a prepared transfer announces it (kArmed). For each firing the destination says
// that it wants it (kWanted). The source sends the bytes once its own end wants the firing too, and
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
// The tag is the launch's (Launch::tag): it names one transfer among all between the two daemons.
struct TcpEntry {
  uint64_t tag = 0;
  uint64_t at = 0;  // kBytes: where in the transfer the bytes begin; kWanted, kArrived: the firing
  uint64_t bytes = 0;  // kBytes: how many bytes; 0 only for a prepared transfer without bytes
};
static_assert(sizeof(TcpHeader) == 8 && sizeof(TcpEntry) == 24);

inline constexpr size_t kTcpMostEntries = 512;
inline constexpr size_t kTcpMessageBytes = size_t{1} << 20;

// The connections between two lanes belong together: when one of them ends all do.
inline constexpr uint32_t kTcpMostConnections = 16;
inline constexpr size_t kTcpLinkIdBytes = 16;

struct TcpPreamble {
  std::string link_id;  // TcpLinkId of the link's secret
  GlobalDeviceId from;  // a device of the dialling daemon
  GlobalDeviceId to;    // a device of the dialled daemon
  uint64_t serial = 0;  // number of the set of connections between the two lanes; grows, so that no
                        // number comes twice
  uint32_t index = 0;   // index of this connection in the set
  uint32_t count = 0;   // connections in the set, 2 to kTcpMostConnections
  bool operator==(const TcpPreamble&) const = default;
};

inline constexpr absl::string_view kTcpMagic = "FERRYTC1";
inline constexpr size_t kTcpPreambleBytes = 8 + kTcpLinkIdBytes + 8 + 8 + 8 + 4 + 4 + kHmacBytes;

// Names a link without giving its secret away.
std::string TcpLinkId(absl::string_view secret);
// Returns kTcpPreambleBytes bytes.
std::string EncodeTcpPreamble(const TcpPreamble& preamble, absl::string_view secret);
// Takes kTcpPreambleBytes bytes. Nothing in them may be believed before ProvesTcp().
absl::StatusOr<TcpPreamble> DecodeTcpPreamble(absl::string_view bytes);
// Whether the sender of the preamble knew the secret.
bool ProvesTcp(absl::string_view bytes, absl::string_view secret);
// The answer of the dialled daemon, kHmacBytes bytes.
std::string TcpAnswer(absl::string_view preamble_bytes, absl::string_view secret);

}  // namespace ferry
