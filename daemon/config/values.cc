// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/values.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ferry {
namespace {

struct Unit {
  absl::string_view name;
  int shift;
};
constexpr Unit kUnits[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};

}  // namespace

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) {
    ++digits;
  }
  const absl::string_view unit_name = absl::StripAsciiWhitespace(text.substr(digits));
  uint64_t number = 0;
  for (const Unit& unit : kUnits) {
    if (unit_name != unit.name) continue;
    if (!absl::SimpleAtoi(text.substr(0, digits), &number)) break;
    if (number > std::numeric_limits<uint64_t>::max() >> unit.shift) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' does not fit 64 bits"));
    }
    return number << unit.shift;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not a size; a whole number and B, KiB, MiB, GiB or TiB, as 64GiB"));
}

std::string FormatSize(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    const uint64_t size = uint64_t{1} << unit.shift;
    if (bytes >= size && bytes % size == 0) return absl::StrCat(bytes / size, unit.name);
  }
  return absl::StrCat(bytes, "B");
}

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

}  // namespace ferry
