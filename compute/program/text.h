// SPDX-License-Identifier: Apache-2.0
// Programs as text, one op a line; docs/programs.md has the grammar. Print() gives the canonical
// text: Parse(Print(p)) is p, and all texts of one program are printed alike. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/reason.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct TextProblem {
  int line = 0;    // from 1; 0: about the program as a whole
  int column = 0;  // from 1, in bytes; 0: about the whole line
  std::string text;
  Reason reason = Reason::kFieldInvalid;
};

struct ParsedText {
  Program program;                    // good only if there are no problems; not verified
  std::vector<int> lines;             // by op, as Verify numbers ops: its line
  std::vector<TextProblem> problems;  // at most kMaxProblems, in the order of the text
  // If there are problems. `whole`: all ops and their bodies were read. `unclear`, by op: something
  // is wrong with it or with what it uses.
  bool whole = true;
  std::vector<bool> unclear;
};

ParsedText Parse(absl::string_view text);
// All problems of a text, at most kMaxProblems, by line: those found when it was read, and those
// that Verify (verify.h) finds in what is clear.
std::vector<TextProblem> CheckText(const ParsedText& parsed);
// "7:12", "7", or "" for a problem of the program as a whole.
std::string PlaceText(const TextProblem& problem);
// The text of a program that CheckStructure (verify.h) accepts.
std::string Print(const Program& program);

// Elements of `type` as text. `list`: several elements, in brackets.
std::string PrintElements(DType type, absl::string_view bytes, bool list);
// Reads element `index`, written as a number, and appends it; two elements of four bits share a
// byte, the first in the low half. Returns what is wrong, or "".
std::string ParseElement(DType type, absl::string_view text, size_t index, std::string& bytes);

}  // namespace ferry::compute
