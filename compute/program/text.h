// SPDX-License-Identifier: Apache-2.0
// Programs as text, one op a line; docs/programs.md has the grammar. Print gives the canonical
// text: Parse(Print(p)) is p, and of two texts of one program Print makes the same. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct TextProblem {
  int line = 0;    // from 1
  int column = 0;  // from 1, in bytes
  std::string text;
};

struct ParsedText {
  Program program;                    // meaningful if there are no problems; not verified
  std::vector<int> lines;             // of each op, as Verify names ops
  std::vector<TextProblem> problems;  // kMaxProblems at most, in the order of the text
};

ParsedText Parse(absl::string_view text);
// Of what CheckStructure (verify.h) accepts.
std::string Print(const Program& program);

// Elements of `type` as text, and back; `list`: several of them, in brackets.
std::string PrintElements(DType type, absl::string_view bytes, bool list);
// Appends one element that is written as a number. "" or what is wrong.
std::string ParseElement(DType type, absl::string_view text, std::string& bytes);

}  // namespace ferry::compute
