// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/nccl_environment.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ferry {

void ReadNcclEnvironment(const std::string& path, const YAML::Node& node, const OriginOf&,
                         ConfigDraft& draft) {
  std::map<std::string, std::string> environment;
  const auto add = [&](const std::string& name, const YAML::Node& value) {
    if (!absl::StartsWith(name, "NCCL_")) {
      draft.Problem(path, absl::StrCat("'", name, "' is no variable of NCCL's: those begin NCCL_"));
    } else if (!value.IsScalar()) {
      draft.Problem(path, absl::StrCat(name, " must have a single value"));
    } else {
      environment[name] = value.Scalar();
    }
  };
  if (!node.IsMap() && !node.IsSequence()) draft.Problem(path, "must be a map of NCCL's variables");
  for (const auto& entry : node) {
    if (node.IsMap()) {
      add(entry.first.IsScalar() ? entry.first.Scalar() : "?", entry.second);
      continue;
    }
    const std::string text = entry.IsScalar() ? entry.Scalar() : "?";
    const size_t equals = text.find('=');
    add(text.substr(0, equals),
        YAML::Node(equals == std::string::npos ? "" : text.substr(equals + 1)));
  }
  draft.config.transfer.nccl.environment = std::move(environment);
}

std::string PrintNcclEnvironment(const Config& config) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : config.transfer.nccl.environment) {
    YAML::Emitter quoted;
    quoted << YAML::DoubleQuoted << value;
    entries.push_back(absl::StrCat(name, ": ", quoted.c_str()));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

}  // namespace ferry
