// SPDX-License-Identifier: Apache-2.0
// A packet of TCP over IPv4 or IPv6, as a cable sees it: whose it is, and what resets its
// connection. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ferry::testing {

struct TcpPacket {
  uint16_t source = 0;
  uint16_t destination = 0;
  bool opens = false;         // the first packet of a connection
  absl::string_view payload;  // of the packet's bytes

  // Nothing of a packet that is not TCP, or is cut.
  static std::optional<TcpPacket> Of(absl::string_view ip);
};

// Says in the name of the sender of `ip`, a packet of TCP, that the connection has ended.
std::string ResetInsteadOf(absl::string_view ip);

}  // namespace ferry::testing
