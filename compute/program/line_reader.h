// SPDX-License-Identifier: Apache-2.0
// Reads tokens line by line and collects problems: the part of the parser that knows no ops.
// Single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/reason.h"
#include "compute/program/lexer.h"
#include "compute/program/limits.h"
#include "compute/program/text.h"

namespace ferry::compute {

class LineReader {
 protected:
  // False if the line has no tokens.
  bool Begin(absl::string_view line);

  const Token& Peek() const { return tokens_[at_]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool Is(TokenKind kind, absl::string_view text) const {
    return Peek().kind == kind && Peek().text == text;
  }
  bool TakeSign(absl::string_view text);
  bool AtEnd() { return Peek().kind == TokenKind::kEnd || Unexpected("the end of the line"); }
  // Reads one or more tokens of `kind`, separated by commas.
  bool List(TokenKind kind, absl::string_view what, std::vector<Token>& list,
            size_t most = kMaxOperands);
  bool Int(const Token& token, int64_t& number);
  // An element type and dimensions, which are added: f32[2,3].
  bool Type(TensorType& type);

  // Both report a problem and return false, for the caller to return: the rest of the line is
  // skipped.
  bool Problem(const Token& token, const std::string& text, Reason reason = Reason::kFieldInvalid);
  bool Unexpected(absl::string_view expected);

  // Problems are about this op from now on: op number `index`, which may have a `name`, as Verify
  // names ops. The op's label is the last token of its line.
  void SetOp(size_t index);
  void SetOp(size_t index, const Token& name);
  void ClearOp() { op_.clear(); }

  ParsedText out_;
  std::vector<Token> tokens_;  // tokens of the present line
  int line_ = 0;

 private:
  size_t at_ = 0;
  std::string op_;  // "op 3 add 'scale': ", which precedes the text of a problem
};

}  // namespace ferry::compute
