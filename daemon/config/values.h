// SPDX-License-Identifier: Apache-2.0
// How values are written in the configuration: durations, host:port, users, modes; sizes are
// base/size. Pure, but that users and groups are the host's; any thread. Errors are only the text
// of what is wrong and what would be right: who reads them knows where the value stood.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ferry {

// "60s", "500ms", "1m30s": positive and finite.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};
// "10.0.0.1:7411", "[::1]:7411", "node-b.example:7411". Port 0 means one that the system picks.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);
// Whether the host is a number that can be listened on, not a name.
bool IsIp(const HostPort& address);
// 127.0.0.0/8, ::1 and the name localhost; what other names resolve to is not asked.
bool IsLoopback(const HostPort& address);

// A user or group of this host by name or number; nothing if there is no such name.
std::optional<uint32_t> FindUser(const std::string& text);
std::optional<uint32_t> FindGroup(const std::string& text);
// "0660" or "660".
std::optional<uint32_t> ParseMode(absl::string_view text);

}  // namespace ferry
