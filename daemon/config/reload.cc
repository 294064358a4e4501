// SPDX-License-Identifier: Apache-2.0
// What a reload changes, by the table of settings.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "daemon/config/config.h"
#include "daemon/config/schema.h"
#include "daemon/config/special_fields.h"

namespace ferry {
namespace {

constexpr char kNodes[] = "membership.nodes";

const Config::Node* FindNode(const Config& config, const std::string& name) {
  for (const Config::Node& node : config.membership.nodes) {
    if (node.name == name) return &node;
  }
  return nullptr;
}

// The order of a peer's devices does not matter.
bool SameDevices(const Config::Node& a, const Config::Node& b) {
  return std::is_permutation(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end());
}

std::string Shown(const Config::Node* node) {
  return node == nullptr ? "none" : absl::StrCat("{ ", PrintRest(*node), " }");
}

// The ids of this node, also if the list has none.
Config::Node OwnNode(const Config& config, size_t gpus) {
  const Config::Node* const own = FindNode(config, config.node.name);
  return own != nullptr ? *own : Config::Node{config.node.name, "", config.OwnIds(gpus)};
}

void CompareNodes(const Config& before, const Config& after, size_t gpus,
                  std::vector<ConfigChange>& changes) {
  const auto add = [&](const std::string& name, const Config::Node* was, const Config::Node* is,
                       Taken taken) {
    changes.push_back({absl::StrCat(kNodes, "[", name, "]"), Shown(was), Shown(is), taken});
  };
  const std::string& self = before.node.name;
  const Config::Node own = OwnNode(before, gpus), own_after = OwnNode(after, gpus);
  if (after.node.name == self && own != own_after) add(self, &own, &own_after, Taken::kAtRestart);
  std::set<std::string> names;
  for (const Config* config : {&before, &after}) {
    for (const Config::Node& node : config->membership.nodes) names.insert(node.name);
  }
  names.erase(self);
  for (const std::string& name : names) {
    const Config::Node *was = FindNode(before, name), *is = FindNode(after, name);
    const bool same =
        was != nullptr && is != nullptr && was->address == is->address && SameDevices(*was, *is);
    if (!same) add(name, was, is, Taken::kAtReload);
  }
}

}  // namespace

std::string ConfigChange::ToString() const {
  // In a list of nodes, each node is a change of its own.
  const bool long_value = absl::StrContains(before, "\n") || absl::StrContains(after, "\n");
  return long_value ? absl::StrCat(setting, ": changed")
                    : absl::StrCat(setting, ": ", before, ", now ", after);
}

std::vector<ConfigChange> CompareConfigs(const Config& before, const Config& after, size_t gpus) {
  std::vector<ConfigChange> changes;
  for (const ConfigField& field : ConfigFields()) {
    if (field.print == nullptr) continue;  // an unsupported setting
    if (field.path == kNodes) {
      CompareNodes(before, after, gpus, changes);
      continue;
    }
    ConfigChange change{field.path, field.print(before), field.print(after), field.taken};
    if (change.before != change.after) changes.push_back(std::move(change));
  }
  return changes;
}

MembershipChange CompareMembership(const Config& before, const Config& after) {
  MembershipChange change;
  for (const Config::Node& node : before.membership.nodes) {
    if (node.name == before.node.name) continue;
    const Config::Node* const is = FindNode(after, node.name);
    if (is == nullptr || !SameDevices(node, *is)) {
      change.gone.push_back(node.name);
    } else if (is->address != node.address) {
      change.moved.push_back(*is);
    }
  }
  for (const Config::Node& node : after.membership.nodes) {
    if (node.name == before.node.name) continue;
    const Config::Node* const was = FindNode(before, node.name);
    if (was == nullptr || !SameDevices(*was, node)) change.come.push_back(node);
  }
  return change;
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
