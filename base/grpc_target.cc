// SPDX-License-Identifier: Apache-2.0
#include "base/grpc_target.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace ferry {
namespace {

// Escapes a path for a URI: all but characters that mean themselves.
std::string Escaped(absl::string_view text) {
  constexpr absl::string_view kPlain = "-._~/:";
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        kPlain.find(c) != absl::string_view::npos) {
      escaped += c;
    } else {
      absl::StrAppend(&escaped, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return escaped;
}

}  // namespace

std::string UnixTarget(absl::string_view path) { return absl::StrCat("unix:", Escaped(path)); }

std::string HostTarget(absl::string_view address) {
  return absl::StrCat("dns:///", Escaped(address));
}

std::string GrpcErrorText(absl::string_view text) {
  constexpr absl::string_view kAll = "failed to connect to all addresses; last error: ";
  if (!absl::ConsumePrefix(&text, kAll)) return std::string(text);
  // "UNKNOWN: ipv4:192.0.2.1:7411: Failed to connect to remote host: Connection refused"
  const size_t code = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  if (code != absl::string_view::npos && absl::StartsWith(text.substr(code), ": ")) {
    text.remove_prefix(code + 2);
  }
  if (!absl::ConsumePrefix(&text, "ipv4:")) absl::ConsumePrefix(&text, "ipv6:");
  return absl::StrCat(
      "connect to ",
      absl::StrReplaceAll(
          text, {{"%5B", "["}, {"%5D", "]"}, {": Failed to connect to remote host: ", ": "}}));
}

}  // namespace ferry
