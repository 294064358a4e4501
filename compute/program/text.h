// SPDX-License-Identifier: Apache-2.0
// Programs as text, one op a line; docs/programs.md has the grammar. Print gives the canonical
// text: Parse(Print(p)) is p, and of two texts of one program Print makes the same. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/reason.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct TextProblem {
  int line = 0;    // from 1; 0: of the program as a whole
  int column = 0;  // from 1, in bytes; 0: of the whole line
  std::string text;
  Reason reason = Reason::kFieldInvalid;
};

struct ParsedText {
  Program program;                    // meaningful if there are no problems; not verified
  std::vector<int> lines;             // of each op, as Verify names ops
  std::vector<TextProblem> problems;  // kMaxProblems at most, in the order of the text
  // If there are problems: whether ops and their bodies are all there, and by op whether something
  // is wrong with it or with what it uses.
  bool whole = true;
  std::vector<bool> unclear;
};

ParsedText Parse(absl::string_view text);
// All that is wrong with a text, kMaxProblems at most, by line: what was found when it was read,
// and what Verify (verify.h) says of all that is clear.
std::vector<TextProblem> CheckText(const ParsedText& parsed);
// "7:12", "7", or "" of the program as a whole.
std::string PlaceText(const TextProblem& problem);
// Of what CheckStructure (verify.h) accepts.
std::string Print(const Program& program);

// Elements of `type` as text, and back; `list`: several of them, in brackets.
std::string PrintElements(DType type, absl::string_view bytes, bool list);
// Appends element `index`, which is written as a number; of four bits, low ones first, two are a
// byte. "" or what is wrong.
std::string ParseElement(DType type, absl::string_view text, size_t index, std::string& bytes);

}  // namespace ferry::compute
