// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/values.h"

#include <arpa/inet.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ferry {
namespace {

constexpr size_t kNameRoom = size_t{1} << 20;  // groups of a directory service can be large

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a duration; a number and ms, s, m or h, as 60s"));
  }
  if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not positive and finite"));
  }
  return duration;
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not an address; host:port, as 10.0.0.1:7411 or [::1]:7411"));
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return wrong;
  absl::string_view host = text.substr(0, colon);
  const absl::string_view digits = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return wrong;
    host = host.substr(1, host.size() - 2);
    in6_addr ignored;
    if (inet_pton(AF_INET6, std::string(host).c_str(), &ignored) != 1) return wrong;
  } else {
    for (char c : host) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') {
        return wrong;
      }
    }
  }
  for (char c : digits) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return wrong;
  }
  uint32_t port = 0;
  if (!absl::SimpleAtoi(digits, &port)) return wrong;
  if (port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': the port is not in 0..65535"));
  }
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

bool IsIp(const HostPort& address) {
  in6_addr ignored;
  return inet_pton(AF_INET, address.host.c_str(), &ignored) == 1 ||
         inet_pton(AF_INET6, address.host.c_str(), &ignored) == 1;
}

bool IsLoopback(const HostPort& address) {
  if (absl::EqualsIgnoreCase(address.host, "localhost")) return true;
  in_addr v4;
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::optional<uint32_t> FindUser(const std::string& text) {
  uint32_t uid = 0;
  if (absl::SimpleAtoi(text, &uid)) return uid;
  passwd entry;
  passwd* found = nullptr;
  std::vector<char> room(kNameRoom);
  getpwnam_r(text.c_str(), &entry, room.data(), room.size(), &found);
  return found != nullptr ? std::optional(entry.pw_uid) : std::nullopt;
}

std::optional<uint32_t> FindGroup(const std::string& text) {
  uint32_t gid = 0;
  if (absl::SimpleAtoi(text, &gid)) return gid;
  group entry;
  group* found = nullptr;
  std::vector<char> room(kNameRoom);
  getgrnam_r(text.c_str(), &entry, room.data(), room.size(), &found);
  return found != nullptr ? std::optional(entry.gr_gid) : std::nullopt;
}

std::optional<uint32_t> ParseMode(absl::string_view text) {
  const absl::string_view digits = text.size() == 4 ? absl::StripPrefix(text, "0") : text;
  if (digits.size() != 3) return std::nullopt;
  uint32_t mode = 0;
  for (const char c : digits) {
    if (c < '0' || c > '7') return std::nullopt;
    mode = mode * 8 + static_cast<uint32_t>(c - '0');
  }
  return mode;
}

}  // namespace ferry
