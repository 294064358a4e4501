// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/fields.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace ferry {

std::string QuoteYaml(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

std::string FlowList(const std::vector<std::string>& items) {
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

std::optional<std::string> ReadScalar(const std::string& path, const YAML::Node& node,
                                      ConfigDraft& draft) {
  if (node.IsScalar()) return node.Scalar();
  draft.Problem(path, node.IsNull() ? "has no value" : "must be a single value");
  return std::nullopt;
}

bool IsDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return absl::ascii_isdigit(c); });
}

std::optional<uint64_t> ReadNumber(const std::string& path, const YAML::Node& node, uint64_t min,
                                   uint64_t max, ConfigDraft& draft) {
  const std::optional<std::string> text = ReadScalar(path, node, draft);
  if (!text) return std::nullopt;
  uint64_t value = 0;
  if (!IsDigits(*text) || !absl::SimpleAtoi(*text, &value) || value < min || value > max) {
    draft.Problem(path, absl::StrCat("'", *text, "' is not a whole number in ", min, "..", max));
    return std::nullopt;
  }
  return value;
}

}  // namespace ferry
