// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace ferry {

size_t Utf8Bytes(absl::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto follows = [&](size_t i) { return byte(i) >= 0x80 && byte(i) < 0xc0; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  // Not overlong, no half of a surrogate pair, not beyond U+10FFFF.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) >= 0xa0) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  if (first >= 0xe0 && first < 0xf0) return follows(1) && follows(2) ? 3 : 0;
  if (first >= 0xf0 && first < 0xf5) return follows(1) && follows(2) && follows(3) ? 4 : 0;
  return 0;
}

std::string Printable(absl::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t bytes = Utf8Bytes(text);
    const unsigned char first = text[0];
    // U+0080 to U+009F: some terminals obey them too.
    const bool wide = bytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
    if (bytes == 0 || first < 0x20 || first == 0x7f || wide) {
      absl::StrAppendFormat(&shown, "\\x%02x", static_cast<unsigned char>(text[wide ? 1 : 0]));
    } else {
      shown.append(text.data(), bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return shown;
}

}  // namespace ferry
