// SPDX-License-Identifier: Apache-2.0
// Shows statuses in tests as "CODE/REASON", whether they come from libferry or from gRPC.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ferry/ferry.hpp"

namespace ferry {

inline void PrintTo(const Status& status, std::ostream* out) { *out << status.ToString(); }
template <typename T>
void PrintTo(const Result<T>& result, std::ostream* out) {
  *out << result.status().ToString();
}

namespace testing {

inline std::string NameOf(const Status& status) {
  if (status.ok()) return "OK";
  std::string name(status.code_name());
  return status.reason().empty() ? name : name.append("/").append(status.reason());
}
template <typename T>
std::string NameOf(const Result<T>& result) {
  return NameOf(result.status());
}
inline std::string NameOf(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()), "/",
                      absl::string_view(ReasonName(ReasonOf(status))));
}

inline std::string TextOf(const Status& status) { return std::string(status.message()); }
template <typename T>
std::string TextOf(const Result<T>& result) {
  return TextOf(result.status());
}
inline std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

// EXPECT_THAT(batch.Wait(), Is("ABORTED/POISONED"));
MATCHER_P(Is, name, "") {
  *result_listener << "which is " << NameOf(arg) << ": " << TextOf(arg);
  return NameOf(arg) == name;
}
// The text must match `text`, a string or a matcher of strings.
MATCHER_P2(Is, name, text, "") {
  *result_listener << "which is " << NameOf(arg) << ": " << TextOf(arg);
  return NameOf(arg) == name &&
         ::testing::SafeMatcherCast<const std::string&>(text).Matches(TextOf(arg));
}
MATCHER(IsOk, "") {
  *result_listener << "which is " << NameOf(arg) << ": " << TextOf(arg);
  return NameOf(arg) == "OK";
}

}  // namespace testing
}  // namespace ferry
