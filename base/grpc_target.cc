// SPDX-License-Identifier: Apache-2.0
#include "base/grpc_target.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ferry {
namespace {

// For the path of a URI, of which it is no more than characters that mean themselves.
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

}  // namespace ferry
