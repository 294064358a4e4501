// SPDX-License-Identifier: Apache-2.0
// How values are written in the configuration: durations, host:port, users, modes. (Sizes:
// base/size.) Pure, except that users and groups are looked up on the host; any thread. An error's
// text says only what is wrong and what would be right; the caller knows where the value stood.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ferry {

// A duration such as "60s", "500ms", "1m30s"; it must be positive and finite.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};
// "10.0.0.1:7411", "[::1]:7411", "node-b.example:7411". With port 0 the system picks a port.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);
// Whether the host is an IP address, which can be listened on, and not a name.
bool IsIp(const HostPort& address);
// Whether the host is in 127.0.0.0/8, is ::1, or is the name localhost. Other names are not
// resolved.
bool IsLoopback(const HostPort& address);

// The number of a user or group of this host, given by name or number; nothing if there is no such
// name.
std::optional<uint32_t> FindUser(const std::string& text);
std::optional<uint32_t> FindGroup(const std::string& text);
// A mode written as "0660" or "660".
std::optional<uint32_t> ParseMode(absl::string_view text);

}  // namespace ferry
