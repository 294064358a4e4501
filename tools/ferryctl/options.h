// SPDX-License-Identifier: Apache-2.0
// Flags with checked values: a value that cannot be parsed is a usage error that names the flag,
// before a command runs. Single-threaded.
#pragma once

#include <sys/un.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest.h"

namespace ferry::tools {

// Stores in `value` what `parse` makes of the flag's text; `parse` says why it cannot.
template <typename Value, typename T>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, Value& value,
                       absl::StatusOr<T> (*parse)(const std::string&), const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [&value, parse](const std::string& text) { value = *parse(text); }, help)
      ->check([parse](const std::string& text) {
        const absl::StatusOr<T> parsed = parse(text);
        return parsed.ok() ? std::string() : std::string(parsed.status().message());
      });
}

// Accepts one of `words`; for a misspelt word the error suggests the one that was probably meant.
inline CLI::Validator OneOf(std::vector<std::string> words) {
  const std::string known = absl::StrJoin(words, ", ");
  std::string shown = absl::StrCat("{", absl::StrJoin(words, ","), "}");
  return CLI::Validator(
      [words = std::move(words), known](const std::string& word) -> std::string {
        if (std::find(words.begin(), words.end(), word) != words.end()) return "";
        const std::string meant = Nearest(word, words);
        return absl::StrCat("'", word, "' is none of ", known,
                            meant.empty() ? "" : absl::StrCat(" (did you mean '", meant, "'?)"));
      },
      std::move(shown));
}

// Accepts whole numbers from `least` on. CLI11's own range takes -3 for a large number if T is
// unsigned.
template <typename T>
auto AtLeast(T least) {
  return [least](const std::string& text) {
    T value;
    const char* const end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && read == end && value >= least) return std::string();
    return absl::StrCat("'", text, "' is not a whole number in ", least, " to ",
                        std::numeric_limits<T>::max());
  };
}

// Accepts an id; the error names the command `lists`, which shows the ids there are.
template <typename T = uint64_t>
auto IdFrom(const char* lists) {
  return [lists](const std::string& text) {
    const std::string wrong = AtLeast<T>(0)(text);
    return wrong.empty() ? wrong : absl::StrCat(wrong, "; `", lists, "` shows them");
  };
}

// Whether all sockets in the runtime directory have paths that are short enough; "" or what is
// wrong.
inline std::string CheckRuntimeDir(const std::string& path) {
  const size_t bytes = path.size() + std::strlen("/client/attach.sock");
  constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (bytes <= kMost) return "";
  return absl::StrCat("runtime directory ", path, ": the path of a socket in it has ", bytes,
                      " bytes, at most ", kMost, " are possible; use a shorter one");
}

}  // namespace ferry::tools
