// SPDX-License-Identifier: Apache-2.0
#include "compute/program/line_reader.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/program/verify.h"

namespace ferry::compute {
namespace {

constexpr size_t kMostShown = 1024;  // bytes of a problem, which may have a token in it

}  // namespace

bool LineReader::Begin(absl::string_view line) {
  ++line_;
  tokens_ = Tokens(line);
  at_ = 0;
  ClearOp();
  return Peek().kind != TokenKind::kEnd;
}

bool LineReader::TakeSign(absl::string_view text) {
  if (!Is(TokenKind::kSign, text)) return false;
  Take();
  return true;
}

bool LineReader::List(TokenKind kind, absl::string_view what, std::vector<Token>& list,
                      size_t most) {
  do {
    if (Peek().kind != kind) return Unexpected(what);
    list.push_back(Take());
    if (list.size() > most) {
      return Problem(list.back(), absl::StrCat("more than ", most, " in one list"));
    }
  } while (TakeSign(","));
  return true;
}

bool LineReader::Int(const Token& token, int64_t& number) {
  if (token.kind == TokenKind::kWord && absl::SimpleAtoi(token.text, &number)) return true;
  const size_t sign = token.text.find_first_of("+-") == 0 ? 1 : 0;
  if (token.kind == TokenKind::kWord && token.text.size() > sign &&
      std::all_of(token.text.begin() + static_cast<ptrdiff_t>(sign), token.text.end(),
                  absl::ascii_isdigit)) {
    return Problem(token, absl::StrCat("'", token.text, "' is out of range: numbers have 64 bits"));
  }
  return Problem(token, absl::StrCat("'", token.text, "' is no number"));
}

bool LineReader::Type(TensorType& type) {
  const std::optional<DType> dtype =
      Peek().kind == TokenKind::kWord ? DTypeOf(Peek().text) : std::nullopt;
  if (!dtype) return Unexpected("an element type, such as f32");
  Take();
  type.dtype = *dtype;
  if (!TakeSign("[")) return Unexpected("[ and dimensions");
  if (TakeSign("]")) return true;
  std::vector<Token> dims;
  if (!List(TokenKind::kWord, "a dimension", dims)) return false;
  for (const Token& token : dims) {
    int64_t dim = 0;
    if (!Int(token, dim)) return false;
    type.dims.push_back(dim);
  }
  return TakeSign("]") || Unexpected("]");
}

bool LineReader::Problem(const Token& token, const std::string& text, Reason reason) {
  if (out_.problems.size() < kMaxProblems) {
    std::string shown = text;
    // Of a long token only the beginning: what is wrong with it may be said behind it.
    if (token.text.size() > kMaxNameBytes) {
      absl::StrReplaceAll({{token.text, ShownLabel(token.text)}}, &shown);
    }
    if (shown.size() > kMostShown) shown = absl::StrCat(shown.substr(0, kMostShown), "...");
    out_.problems.push_back({std::max(line_, 1), token.column, op_ + shown, reason});
  }
  return false;
}

bool LineReader::Unexpected(absl::string_view expected) {
  const Token& token = Peek();
  if (token.kind == TokenKind::kBad) return Problem(token, token.text);
  const std::string found =
      token.kind == TokenKind::kEnd ? "the line ends" : absl::StrCat("found '", token.text, "'");
  return Problem(token, absl::StrCat("expected ", expected, ", ", found));
}

void LineReader::SetOp(size_t index) { op_ = absl::StrCat("op ", index, ": "); }

void LineReader::SetOp(size_t index, const Token& name) {
  op_ = absl::StrCat("op ", index, " ", name.text);
  // The last token is the end of the line.
  const size_t last = tokens_.size() - 2;
  const bool labelled = tokens_[last].kind == TokenKind::kString && tokens_[last - 1].text != "=";
  if (labelled) absl::StrAppend(&op_, " '", ShownLabel(tokens_[last].text), "'");
  absl::StrAppend(&op_, ": ");
}

}  // namespace ferry::compute
