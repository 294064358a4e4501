// SPDX-License-Identifier: Apache-2.0
// Cuts one line of a program's text into tokens. Single-threaded; the line must outlive the tokens.
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
  kString,  // "..." with C's escapes, which are resolved
  kSign,    // one of = , : [ ] ( )
  kBad,     // none of these; `text` says why
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a name, without its sign
  int column = 1;
};

// The tokens, then kEnd; or the tokens up to a kBad, then kEnd. A # begins a comment.
std::vector<Token> Tokens(absl::string_view line);

}  // namespace ferry::compute
