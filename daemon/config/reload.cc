// SPDX-License-Identifier: Apache-2.0
// What a reload makes of a configuration, by the table of settings.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "daemon/config/config.h"
#include "daemon/config/schema.h"

namespace ferry {

std::string ConfigChange::ToString() const {
  // A list of nodes has a line for each.
  const bool long_value = absl::StrContains(before, "\n") || absl::StrContains(after, "\n");
  return long_value ? absl::StrCat(setting, ": changed")
                    : absl::StrCat(setting, ": ", before, ", now ", after);
}

std::vector<ConfigChange> CompareConfigs(const Config& before, const Config& after) {
  std::vector<ConfigChange> changes;
  for (const ConfigField& field : ConfigFields()) {
    if (field.print == nullptr) continue;  // not supported
    ConfigChange change{field.path, field.print(before), field.print(after), field.taken};
    if (change.before != change.after) changes.push_back(std::move(change));
  }
  return changes;
}

absl::Status CheckReload(const std::vector<ConfigChange>& changes) {
  std::vector<std::string> refused;
  for (const ConfigChange& change : changes) {
    if (change.taken == Taken::kAtRestart) refused.push_back(change.ToString());
  }
  if (refused.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
               absl::StrCat("reload: nothing is taken over, since only a restart takes ",
                            absl::StrJoin(refused, "; ")));
}

void TakeOver(const Config& loaded, Config& running) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.taken != Taken::kAtRestart) field.copy(loaded, running);
  }
}

}  // namespace ferry
