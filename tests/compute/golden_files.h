// SPDX-License-Identifier: Apache-2.0
// The golden files of a folder, each by its name without the ending, sorted.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace ferry::compute {

inline std::vector<std::string> GoldenFiles(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ferry::compute
