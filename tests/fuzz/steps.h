// SPDX-License-Identifier: Apache-2.0
// Cuts a fuzzer's input into steps. Steps are separated by "\n~~\n" instead of having lengths, so
// that a step which mutation makes longer or shorter leaves the others as they are. A step's first
// byte says what it is. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ferry::testing {

struct Step {
  char verb = 0;
  std::string body;
  // Byte i of a body that is no message; 0 beyond its end.
  uint8_t operator[](size_t i) const { return i < body.size() ? static_cast<uint8_t>(body[i]) : 0; }
};

// More steps would only cost time.
inline constexpr size_t kMaxSteps = 64;

inline std::vector<Step> StepsOf(const uint8_t* data, size_t size) {
  std::vector<Step> steps;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  for (absl::string_view text : absl::StrSplit(input, "\n~~\n")) {
    if (text.empty()) continue;
    if (steps.size() == kMaxSteps) break;
    steps.push_back({text[0], std::string(text.substr(1))});
  }
  return steps;
}

}  // namespace ferry::testing
