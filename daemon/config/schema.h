// SPDX-License-Identifier: Apache-2.0
// The table of all settings: one row reads, checks, prints and explains a setting, so that the four
// cannot drift apart. Home: the thread that calls LoadConfig or PrintConfig.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/config/config.h"

namespace ferry {

// A configuration that is being put together. `origins` says where each setting was last set
// ("ferryd.yaml:3:5"), also for parts of settings: "membership.nodes[0].address".
struct ConfigDraft {
  Config config;
  std::map<std::string, std::string> origins;
  std::vector<std::string> problems;
  std::set<std::string> broken;  // settings with a problem; no other check builds on them

  // Whether a source has set it; whether no problem was found in it.
  bool given(const std::string& path) const { return origins.count(path) != 0; }
  bool sound(const std::string& path) const { return broken.count(path) == 0; }
  // Adds the problem "ORIGIN: PATH: what"; for a default, "default: PATH: what".
  void Problem(const std::string& path, absl::string_view what);
};

// Where a node of one source stands: "ferryd.yaml:3:5", or "--flag".
using OriginOf = std::function<std::string(const YAML::Node&)>;

// One setting: a row of the table.
struct ConfigField {
  enum class Kind { kText, kNumber, kList };
  std::string path;
  std::string meaning;  // for people; empty: the setting is not supported
  std::string type;     // what values it takes, with their bounds; for people
  Kind kind = Kind::kText;
  // Puts `node` into draft.config, or adds a Problem. draft.origins[path] is set before.
  std::function<void(const std::string& path, const YAML::Node& node, const OriginOf& origin,
                     ConfigDraft& draft)>
      read;
  // The value as YAML on one line; if it starts with a line feed, on lines of its own.
  std::function<std::string(const Config&)> print;
  // Copies the setting from `from` to `to`.
  std::function<void(const Config& from, Config& to)> copy = nullptr;
  std::string default_words = "";  // for people, if the default is not the same everywhere
  Taken taken = Taken::kAtRestart;
};

// In the order in which they are printed; the settings of one section are neighbours.
const std::vector<ConfigField>& ConfigFields();
const ConfigField* FindConfigField(absl::string_view path);
bool IsConfigSection(absl::string_view path);

// The variable of the setting: FERRY_SECTION__KEY.
std::string EnvironmentName(const ConfigField& field);
// Settings that have a second, shorter variable: {"FERRY_RUNTIME_DIR", "node.runtime_dir"}.
const std::map<std::string, std::string>& ShortEnvironmentNames();

// What an unknown key of `section` ("" is the top) may have been meant to be: "did you mean
// limits.session_bytes?" or "known here: name, runtime_dir".
std::string SuggestKey(absl::string_view section, absl::string_view key);
// The setting or section that was probably meant; "" if no name is near.
std::string NearestKey(absl::string_view section, absl::string_view key);

// Checks that look at more than one setting.
void CheckConfig(ConfigDraft& draft);

}  // namespace ferry
