// SPDX-License-Identifier: Apache-2.0
#include "base/version.h"

#include "absl/strings/str_cat.h"

namespace ferry {
namespace {

std::string& Text() {
  static std::string* const text = new std::string(FERRY_VERSION);
  return *text;
}

}  // namespace

const std::string& Version() { return Text(); }

void SetCommit(const std::string& commit) {
  Text() = commit.empty() ? FERRY_VERSION : absl::StrCat(FERRY_VERSION, " (commit ", commit, ")");
}

}  // namespace ferry
