// SPDX-License-Identifier: Apache-2.0
// Parses a packet of TCP over IPv4 or IPv6, and makes the packet that resets its connection. Any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ferry::testing {

struct TcpPacket {
  uint16_t source = 0;
  uint16_t destination = 0;
  bool opens = false;         // it is the first packet of a connection
  absl::string_view payload;  // refers to the packet's bytes

  // Nothing if `ip` is not a whole packet of TCP.
  static std::optional<TcpPacket> Of(absl::string_view ip);
};

// The packet by which the sender of `ip`, a packet of TCP, would reset the connection.
std::string ResetInsteadOf(absl::string_view ip);

}  // namespace ferry::testing
