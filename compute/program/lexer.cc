// SPDX-License-Identifier: Apache-2.0
#include "compute/program/lexer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace ferry::compute {
namespace {

bool IsWord(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '+' || c == '-';
}

TokenKind NameKind(char sign) {
  return sign == '%' ? TokenKind::kValue : sign == '@' ? TokenKind::kBuffer : TokenKind::kMark;
}

}  // namespace

std::vector<Token> Tokens(absl::string_view line) {
  std::vector<Token> tokens;
  size_t at = 0;
  const auto word = [&] {
    const size_t from = at;
    while (at < line.size() && IsWord(line[at])) ++at;
    return std::string(line.substr(from, at - from));
  };
  const auto end = [&] {
    tokens.push_back({TokenKind::kEnd, "", static_cast<int>(at) + 1});
    return std::move(tokens);
  };
  while (at < line.size() && line[at] != '#') {
    const char c = line[at];
    const int column = static_cast<int>(at) + 1;
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
    } else if (IsWord(c)) {
      tokens.push_back({TokenKind::kWord, word(), column});
    } else if (c == '%' || c == '@' || c == '^') {
      ++at;
      tokens.push_back({NameKind(c), word(), column});
      if (!tokens.back().text.empty()) continue;
      tokens.back() = {TokenKind::kBad, absl::StrCat("a name follows ", std::string(1, c)), column};
      return end();
    } else if (c == '"') {
      size_t close = at + 1;
      while (close < line.size() && line[close] != '"') close += line[close] == '\\' ? 2 : 1;
      std::string text;
      if (close >= line.size() || !absl::CUnescape(line.substr(at + 1, close - at - 1), &text)) {
        tokens.push_back(
            {TokenKind::kBad, "a string that does not end or has a wrong escape", column});
        return end();
      }
      tokens.push_back({TokenKind::kString, std::move(text), column});
      at = close + 1;
    } else if (absl::string_view("=,:[]()").find(c) != absl::string_view::npos) {
      tokens.push_back({TokenKind::kSign, std::string(1, c), column});
      ++at;
    } else {
      tokens.push_back({TokenKind::kBad,
                        absl::StrCat("what is '", absl::CEscape(std::string(1, c)), "'?"), column});
      return end();
    }
  }
  return end();
}

}  // namespace ferry::compute
