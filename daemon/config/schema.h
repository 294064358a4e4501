// SPDX-License-Identifier: Apache-2.0
// The table of all settings: one row reads, checks, prints and explains a setting, so that the four
// cannot drift. Home: LoadConfig and PrintConfig, whatever thread calls them.
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

// A configuration while it is put together. `origins` tells where each setting was last set
// ("ferryd.yaml:3:5"), also of parts: "membership.nodes[0].address".
struct ConfigDraft {
  Config config;
  std::map<std::string, std::string> origins;
  std::vector<std::string> problems;
  std::set<std::string> broken;  // settings with a problem: no other check builds on them

  bool given(const std::string& path) const { return origins.count(path) != 0; }
  bool sound(const std::string& path) const { return broken.count(path) == 0; }
  // Adds "ORIGIN: PATH: what"; without an origin, "default: PATH: what".
  void Problem(const std::string& path, absl::string_view what);
};

// Where the nodes of one source are: turns a node into "ferryd.yaml:3:5", or says "--flag".
using OriginOf = std::function<std::string(const YAML::Node&)>;

struct ConfigField {
  enum class Kind { kText, kNumber, kList };
  std::string path;
  std::string meaning;  // for people; empty: the setting is not supported
  std::string type;     // what its value is, with its bounds
  Kind kind = Kind::kText;
  // Puts `node` into draft.config; what is wrong with it becomes a Problem. draft.origins[path] is
  // set.
  std::function<void(const std::string& path, const YAML::Node& node, const OriginOf& origin,
                     ConfigDraft& draft)>
      read;
  // As YAML, on one line; or, starting with a line feed, on lines of its own.
  std::function<std::string(const Config&)> print;
  // Makes the setting of `to` that of `from`.
  std::function<void(const Config& from, Config& to)> copy = nullptr;
  std::string default_words = "";  // for people, where the default is no constant
  Taken taken = Taken::kAtRestart;
};

// In the order in which they print: fields of one section are neighbours.
const std::vector<ConfigField>& ConfigFields();
const ConfigField* FindConfigField(absl::string_view path);
bool IsConfigSection(absl::string_view path);

// The variable that sets it: FERRY_SECTION__KEY.
std::string EnvironmentName(const ConfigField& field);
// Settings that have a second, shorter one: {"FERRY_RUNTIME_DIR", "node.runtime_dir"}.
const std::map<std::string, std::string>& ShortEnvironmentNames();

// What else could be meant by an unknown key of `section` ("" is the top):
// "did you mean limits.session_bytes?" or "known here: name, runtime_dir".
std::string SuggestKey(absl::string_view section, absl::string_view key);
// The setting or section that is meant, as far as can be told; "" if nothing is near.
std::string NearestKey(absl::string_view section, absl::string_view key);

// The checks that look at more than one setting.
void CheckConfig(ConfigDraft& draft);

}  // namespace ferry
