// SPDX-License-Identifier: Apache-2.0
// One line of a program's text as tokens. Single-threaded; the line must outlive it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ferry::compute {

enum class TokenKind : uint8_t {
  kWord,    // letters, digits, _ . + -
  kValue,   // %name
  kBuffer,  // @name
  kMark,    // ^name
  kString,  // "..." with C's escapes, taken out
  kSign,    // one of = , : [ ] ( )
  kBad,     // what is none of these; text says why
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a name without its sign
  int column = 1;
};

// Ends with a kEnd, or a kBad and a kEnd. A # begins a comment.
std::vector<Token> Tokens(absl::string_view line);

}  // namespace ferry::compute
