// SPDX-License-Identifier: Apache-2.0
// Flags with checked values: what does not read is a usage error that names the flag, before a
// command runs. Single-threaded.
#pragma once

#include <sys/un.h>

#include <CLI/CLI.hpp>

#include <cstring>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace ferry::tools {

// `text` is stored in `value` by `parse`, which says why it cannot.
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

// CLI11's own PositiveNumber tells people the largest double in 309 digits.
template <typename T>
CLI::Range AtLeast(T least) {
  return CLI::Range(least, std::numeric_limits<T>::max());
}

// Of all sockets in it; "" or what is wrong.
inline std::string CheckRuntimeDir(const std::string& path) {
  const size_t bytes = path.size() + std::strlen("/client/attach.sock");
  constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (bytes <= kMost) return "";
  return absl::StrCat("runtime directory ", path, ": the path of a socket in it has ", bytes,
                      " bytes, at most ", kMost, " are possible; use a shorter one");
}

}  // namespace ferry::tools
