// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include "absl/strings/str_format.h"

namespace ferry {

std::string Printable(absl::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = text[i];
    // U+0080 to U+009F: some terminals obey them too.
    const bool wide = c == 0xc2 && i + 1 < text.size() && (text[i + 1] & 0xe0) == 0x80;
    if (wide) {
      absl::StrAppendFormat(&shown, "\\x%02x", static_cast<unsigned char>(text[++i]));
    } else if (c < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&shown, "\\x%02x", c);
    } else {
      shown.push_back(static_cast<char>(c));
    }
  }
  return shown;
}

}  // namespace ferry
