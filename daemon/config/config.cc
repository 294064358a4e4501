// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/config.h"

#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "daemon/config/schema.h"

namespace ferry {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// `key` says where a value stands that is absent: yaml-cpp puts an absent value on a later line.
void ReadField(const ConfigField& field, const YAML::Node& key, const YAML::Node& node,
               const OriginOf& origin, ConfigDraft& draft) {
  draft.origins[field.path] = origin(node.IsNull() ? key : node);
  draft.broken.erase(field.path);
  field.read(field.path, node, origin, draft);
}

// A setting that an unknown key was probably meant for has not the value that was wanted, so no
// other check may complain of it as well.
void MarkMeant(const std::string& section, const std::string& key, ConfigDraft& draft) {
  const std::string meant = NearestKey(section, key);
  if (meant.empty()) return;
  for (const ConfigField& field : ConfigFields()) {
    if (field.path == meant || absl::StartsWith(field.path, absl::StrCat(meant, "."))) {
      draft.broken.insert(field.path);
    }
  }
}

// Sections are merged key by key. A field, also a list, replaces what an earlier source said.
void ReadSection(const std::string& section, const YAML::Node& map, const OriginOf& origin,
                 ConfigDraft& draft) {
  if (map.IsNull()) return;
  if (!map.IsMap()) {
    draft.problems.push_back(absl::StrCat(origin(map), ": ", section.empty() ? "the file" : section,
                                          ": must be a map of keys and values"));
    return;
  }
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const std::string path = section.empty() ? key : absl::StrCat(section, ".", key);
    const auto problem = [&](absl::string_view what) {
      draft.problems.push_back(absl::StrCat(origin(entry.first), ": ", path, ": ", what));
    };
    if (!seen.insert(key).second) {
      problem("given twice");
    } else if (const ConfigField* field = FindConfigField(path)) {
      ReadField(*field, entry.first, entry.second, origin, draft);
    } else if (IsConfigSection(path)) {
      ReadSection(path, entry.second, origin, draft);
    } else {
      problem(absl::StrCat("unknown key; ", SuggestKey(section, key)));
      MarkMeant(section, key, draft);
    }
  }
}

// Takes the events of a document and ignores them.
class Deaf final : public YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::LoadAll is not used, because a stray comma at the top makes it load empty documents for
// ever (yaml-cpp 0.7).
bool HasSecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Deaf handler;
  return parser.HandleNextDocument(handler) && parser.HandleNextDocument(handler);
}

// Whether the line (counted from 1) is indented with a tab.
bool IndentedByTab(const std::string& text, int line) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (line < 1 || static_cast<size_t>(line) > lines.size()) return false;
  const absl::string_view at = lines[line - 1];
  const absl::string_view indent = at.substr(0, at.find_first_not_of(" \t"));
  return absl::StrContains(indent, '\t');
}

void ReadFile(const std::string& file, ConfigDraft& draft) {
  std::ifstream stream(file, std::ios::binary);
  std::error_code error;
  if (!stream || std::filesystem::is_directory(file, error)) {
    draft.problems.push_back(
        absl::StrCat(file, ": cannot be read: ", stream ? "is a directory" : strerror(errno)));
    return;
  }
  std::string text(kMaxFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMaxFileBytes) {
    draft.problems.push_back(absl::StrCat(file, ": is larger than 1 MiB"));
    return;
  }
  const OriginOf origin = [&file](const YAML::Node& node) {
    const YAML::Mark mark = node.Mark();
    return mark.is_null() ? file : absl::StrCat(file, ":", mark.line + 1, ":", mark.column + 1);
  };
  try {  // yaml-cpp throws; no exception leaves this function
    const YAML::Node document = YAML::Load(text);
    if (HasSecondDocument(text)) {
      draft.problems.push_back(absl::StrCat(file, ": goes on after its YAML document has ended"));
    } else {
      ReadSection("", document, origin, draft);
    }
  } catch (const YAML::Exception& e) {
    const int line = e.mark.line + 1;
    draft.problems.push_back(
        IndentedByTab(text, line)
            ? absl::StrCat(file, ":", line,
                           ": is indented by a tab, which YAML does not take; use spaces")
            : absl::StrCat(file, ":", line, ":", e.mark.column + 1, ": is not YAML: ", e.msg));
  }
}

std::vector<std::string> DropIns(const std::string& directory, ConfigDraft& draft) {
  std::vector<std::string> files;
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) return files;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".yaml") files.push_back(entry->path().string());
  }
  if (error) {
    draft.problems.push_back(absl::StrCat(directory, ": cannot be read: ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Reads a setting that is given as text, by the environment or a flag.
void ReadText(const std::string& path, const std::string& value, const std::string& origin_text,
              ConfigDraft& draft) {
  const OriginOf origin = [&origin_text](const YAML::Node&) { return origin_text; };
  const ConfigField* field = FindConfigField(path);
  if (field == nullptr) {
    const size_t dot = path.rfind('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string key = dot == std::string::npos ? path : path.substr(dot + 1);
    const std::string what = IsConfigSection(path)
                                 ? absl::StrCat("is a section; ", SuggestKey(path, ""))
                                 : absl::StrCat("unknown key; ", SuggestKey(section, key));
    MarkMeant(section, key, draft);
    draft.problems.push_back(absl::StrCat(origin_text, ": ", path, ": ", what));
    return;
  }
  try {
    YAML::Node node;
    if (field->kind == ConfigField::Kind::kList && !absl::StartsWith(value, "[")) {
      node = YAML::Load(absl::StrCat("[", value, "]"));
    } else if (field->kind == ConfigField::Kind::kList) {
      node = YAML::Load(value);
    } else {
      node = YAML::Node(value);
    }
    ReadField(*field, node, node, origin, draft);
  } catch (const YAML::Exception& e) {
    draft.problems.push_back(absl::StrCat(origin_text, ": ", path, ": is not YAML: ", e.msg));
  }
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace

std::vector<GlobalDeviceId> Config::OwnIds(size_t gpus) const {
  for (const Node& member : membership.nodes) {
    if (member.name == node.name) return member.ids;
  }
  std::vector<GlobalDeviceId> ids;
  for (size_t i = 0; i < devices.host + gpus; ++i) ids.emplace_back(devices.base_id + i);
  return ids;
}

std::optional<size_t> Config::GpuIds() const {
  for (const Node& member : membership.nodes) {
    if (member.name == node.name) return member.ids.size() - devices.host;
  }
  return std::nullopt;
}

absl::StatusOr<Config> LoadConfig(const ConfigSources& sources) {
  ConfigDraft draft;
  draft.config.node.name = sources.hostname.empty() ? HostName() : sources.hostname;
  if (sources.file) {
    ReadFile(*sources.file, draft);
    const std::filesystem::path beside = std::filesystem::path(*sources.file).parent_path();
    for (const std::string& directory :
         {(beside / "conf.d").string(), absl::StrCat(*sources.file, ".d")}) {
      for (const std::string& file : DropIns(directory, draft)) ReadFile(file, draft);
    }
  }
  for (const auto& [name, value] : sources.environment) {
    if (!absl::StartsWith(name, "FERRY_")) continue;
    const auto known = ShortEnvironmentNames().find(name);
    const std::string path =
        known != ShortEnvironmentNames().end()
            ? known->second
            : absl::StrReplaceAll(absl::AsciiStrToLower(name.substr(strlen("FERRY_"))),
                                  {{"__", "."}});
    if (!absl::StrContains(path, ".")) continue;
    ReadText(path, value, absl::StrCat("environment ", name), draft);
  }
  for (const ConfigSources::Override& flag : sources.overrides) {
    ReadText(flag.path, flag.value, flag.origin, draft);
  }
  CheckConfig(draft);
  if (!draft.problems.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
                 absl::StrJoin(draft.problems, "\n"));
  }
  return std::move(draft.config);
}

std::string PrintConfig(const Config& config) {
  std::string out;
  std::vector<std::string> open;  // the sections that are open
  for (const ConfigField& field : ConfigFields()) {
    if (field.print == nullptr) continue;  // an unsupported setting is not printed
    std::vector<std::string> parts = absl::StrSplit(field.path, '.');
    const std::string key = parts.back();
    parts.pop_back();
    size_t common = 0;
    while (common < open.size() && common < parts.size() && open[common] == parts[common]) ++common;
    for (size_t depth = common; depth < parts.size(); ++depth) {
      absl::StrAppend(&out, std::string(2 * depth, ' '), parts[depth], ":\n");
    }
    open = parts;
    const std::string indent(2 * parts.size(), ' ');
    const std::string value = field.print(config);
    const bool own_lines = absl::StartsWith(value, "\n");
    absl::StrAppend(&out, indent, key, own_lines ? ":" : ": ",
                    absl::StrReplaceAll(value, {{"\n", absl::StrCat("\n", indent, "  ")}}), "\n");
  }
  return out;
}

}  // namespace ferry
