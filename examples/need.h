// SPDX-License-Identifier: Apache-2.0
// What examples of several steps do with an error: they print it and end. A library of yours would
// hand it on.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "ferry/ferry.hpp"

inline void Need(const ferry::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// What the call gives.
template <typename T>
T Need(ferry::Result<T> result) {
  Need(result.status());
  return std::move(*result);
}

inline std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
