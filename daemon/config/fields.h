// SPDX-License-Identifier: Apache-2.0
// Makers of rows for the table of settings, one for each common kind of value. `at` names the
// setting's member: [](Config& c) -> auto& { return c.node.name; }. `at` is called for printing
// too, where nothing is written. Home: as daemon/config/schema.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/size.h"
#include "daemon/config/schema.h"
#include "daemon/config/values.h"

namespace ferry {

// `text` in YAML's quotation marks; nothing in `text` can end them.
std::string QuoteYaml(const std::string& text);
std::string FlowList(const std::vector<std::string>& items);  // "[a, b]"
bool IsDigits(absl::string_view text);

// What a reload does with a setting: copies its member.
template <typename At>
std::function<void(const Config&, Config&)> CopyOf(At at) {
  return [=](const Config& from, Config& to) { at(to) = at(const_cast<Config&>(from)); };
}

// The text of a scalar. Anything else is a problem of `path`, and nothing is returned.
std::optional<std::string> ReadScalar(const std::string& path, const YAML::Node& node,
                                      ConfigDraft& draft);
// A whole number from `min` to `max`, without sign, in base ten. Anything else is a problem of
// `path`.
std::optional<uint64_t> ReadNumber(const std::string& path, const YAML::Node& node, uint64_t min,
                                   uint64_t max, ConfigDraft& draft);

template <typename At>
ConfigField TextField(std::string path, std::string meaning, At at,
                      const std::function<std::string(const std::string&)>& wrong = {}) {
  return {
      std::move(path),
      std::move(meaning),
      "text",
      ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = ReadScalar(where, node, draft);
        if (!text) return;
        const std::string problem = wrong ? wrong(*text) : "";
        if (!problem.empty()) return draft.Problem(where, problem);
        at(draft.config) = *text;
      },
      [=](const Config& config) { return QuoteYaml(at(const_cast<Config&>(config))); },
      CopyOf(at)};
}

template <typename At>
ConfigField NumberField(std::string path, std::string meaning, uint64_t min, uint64_t max, At at) {
  return {
      std::move(path),
      std::move(meaning),
      absl::StrCat("whole number, ", min, " to ", max),
      ConfigField::Kind::kNumber,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<uint64_t> number = ReadNumber(where, node, min, max, draft);
        if (!number) return;
        auto& member = at(draft.config);
        member = static_cast<std::decay_t<decltype(member)>>(*number);
      },
      [=](const Config& config) { return absl::StrCat(at(const_cast<Config&>(config))); },
      CopyOf(at)};
}

template <typename At>
ConfigField SizeField(std::string path, std::string meaning, At at) {
  return {
      std::move(path),
      std::move(meaning),
      "size",
      ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = ReadScalar(where, node, draft);
        if (!text) return;
        const absl::StatusOr<uint64_t> size = *text == "0" ? uint64_t{0} : ParseSize(*text);
        if (!size.ok()) return draft.Problem(where, size.status().message());
        if (*size == 0) {
          return draft.Problem(
              where, absl::StrCat("must be more than 0",
                                  absl::StartsWith(where, "limits.")
                                      ? "; it cannot be switched off, only be large, as 1024 TiB"
                                      : ""));
        }
        at(draft.config) = *size;
      },
      [=](const Config& config) { return FormatSize(at(const_cast<Config&>(config))); },
      CopyOf(at)};
}

template <typename At>
ConfigField DurationField(std::string path, std::string meaning, At at) {
  return {
      std::move(path),
      std::move(meaning),
      "duration",
      ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = ReadScalar(where, node, draft);
        if (!text) return;
        const absl::StatusOr<absl::Duration> duration = ParseDuration(*text);
        if (!duration.ok()) return draft.Problem(where, duration.status().message());
        at(draft.config) = *duration;
      },
      [=](const Config& config) { return absl::FormatDuration(at(const_cast<Config&>(config))); },
      CopyOf(at)};
}

template <typename At>
ConfigField BoolField(std::string path, std::string meaning, At at) {
  return {
      std::move(path),
      std::move(meaning),
      "`true` or `false`",
      ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = ReadScalar(where, node, draft);
        if (!text) return;
        if (*text != "true" && *text != "false") {
          return draft.Problem(where, absl::StrCat("'", *text, "' is not true or false"));
        }
        at(draft.config) = *text == "true";
      },
      [=](const Config& config) {
        return std::string(at(const_cast<Config&>(config)) ? "true" : "false");
      },
      CopyOf(at)};
}

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
std::optional<Value> Choose(const std::string& path, const std::string& text,
                            const Choices<Value>& choices, ConfigDraft& draft) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    names.push_back(name);
  }
  draft.Problem(path, absl::StrCat("'", text, "' is not one of ", absl::StrJoin(names, ", ")));
  return std::nullopt;
}

template <typename Value>
std::string ChoiceName(const Choices<Value>& choices, const Value& value) {
  for (const auto& [name, choice] : choices) {
    if (choice == value) return name;
  }
  return "";
}

// The names for people: "`order`, `estimate`".
template <typename Value>
std::string ChoiceNames(const Choices<Value>& choices) {
  return absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) {
    absl::StrAppend(out, "`", choice.first, "`");
  });
}

template <typename Value, typename At>
ConfigField ChoiceField(std::string path, std::string meaning, Choices<Value> choices, At at) {
  return {
      std::move(path),
      std::move(meaning),
      absl::StrCat("one of ", ChoiceNames(choices)),
      ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = ReadScalar(where, node, draft);
        if (!text) return;
        if (auto value = Choose(where, *text, choices, draft)) at(draft.config) = *value;
      },
      [=](const Config& config) { return ChoiceName(choices, at(const_cast<Config&>(config))); },
      CopyOf(at)};
}

// Reads a list. `item(path, node)` reads one entry; it reports a problem and returns nothing if the
// entry is wrong. An entry that is in the list twice is a problem.
template <typename Value>
std::vector<Value> List(
    const std::string& path, const YAML::Node& node, const OriginOf& origin, ConfigDraft& draft,
    const std::function<std::optional<Value>(const std::string&, const YAML::Node&)>& item) {
  std::vector<Value> values;
  if (!node.IsSequence()) {
    draft.Problem(path, "must be a list");
    return values;
  }
  for (size_t i = 0; i < node.size(); ++i) {
    const std::string where = absl::StrCat(path, "[", i, "]");
    draft.origins[where] = origin(node[i]);
    std::optional<Value> value = item(where, node[i]);
    if (!value) continue;
    if (std::find(values.begin(), values.end(), *value) != values.end()) {
      draft.Problem(where, "is in the list twice");
    }
    values.push_back(*std::move(value));
  }
  return values;
}

}  // namespace ferry
