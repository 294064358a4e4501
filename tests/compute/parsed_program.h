// SPDX-License-Identifier: Apache-2.0
// A program of a test, from its text. Any thread.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute::testing {

// What is wrong with the text fails the test, which goes on.
inline Program ParsedProgram(const std::string& text) {
  ParsedText parsed = Parse(text);
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ": " << problem.text << "\n" << text;
  }
  for (const Problem& problem : Verify(parsed.program)) {
    ADD_FAILURE() << ToString(parsed.program, problem) << "\n" << text;
  }
  return std::move(parsed.program);
}

}  // namespace ferry::compute::testing
