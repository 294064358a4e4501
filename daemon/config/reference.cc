// SPDX-License-Identifier: Apache-2.0
// Writes docs/configuration.md from the table of settings.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "daemon/config/config.h"
#include "daemon/config/schema.h"

namespace ferry {
namespace {

constexpr char kHead[] = R"(# Configuration

What can be set about `ferryd`. `ferryd --print-settings` writes this page, out of the table by which it reads its
configuration; `ferryd --print-config` shows what holds, `ferryd --check-config` whether it is good (exit status 78 if
not, with every problem and where it stands).

## Where settings come from

The later goes over the earlier:

1. the defaults below;
2. the file that `--config` names, YAML: sections and keys, as `limits: { sessions: 8 }` for `limits.sessions`;
3. its drop-ins, files whose names end in `.yaml`: first those of `conf.d/` beside the file, then those of `FILE.d/`,
   each in the order of their names. A drop-in merges sections; a list goes in place of the earlier list;
4. the environment: `FERRY_SECTION__KEY`, each named below;
5. flags (`ferryd --help`).

An unknown key is an error, as is a bad value: no setting is passed over. Without any of them a node is alone, with all
of its GPUs and two host devices.

## Reload

`ferryctl reload`, or SIGHUP, has a running daemon read all of that again; flags and environment are those of its start.
The last column says what it makes of a setting that has changed:

- *reload*: it holds from then on. What is beyond a limit that was lowered stays as it is, and nothing is added to it;
- *new sessions*: it holds for clients that attach from then on;
- *restart*: only a restart takes it ([clients outlive that](failures.md)). A reload that would change such a setting is
  refused, and so is one whose configuration is bad: nothing of it is taken over, and the error names every such
  setting.

The generation of the configuration, in `ferryctl status` and as `ferry_config_generation`, is 1 at the start, and one
more after each reload that was taken over. `ferryctl loglevel` sets the log's level until the next reload or start.

## How values are written

| value | is |
|---|---|
| size | a number and `B`, `KB`, `MB`, `GB`, `TB` (powers of 1,000), `KiB`, `MiB`, `GiB` or `TiB` (of 1,024), as `1GB`, `1.5 GiB`; without a unit it is bytes. As in `ferryctl` |
| duration | a number and `ms`, `s`, `m` or `h`, as `60s`, `1m30s`; more than 0 |
| list | `[a, b]`; in flags and the environment also `a,b` |
| map | `{ A: x, B: y }`; in flags and the environment `A=x,B=y` |
)";

// The text of one cell of a table: characters that would end the cell are escaped.
std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string Default(const ConfigField& field) {
  if (!field.default_words.empty()) return field.default_words;
  const std::string value = field.print(Config());
  return value == "\"\"" ? "empty"
                         : absl::StrCat("`", absl::StrReplaceAll(value, {{"\"", ""}}), "`");
}

std::string Environment(const ConfigField& field) {
  std::vector<std::string> names = {absl::StrCat("`", EnvironmentName(field), "`")};
  for (const auto& [name, path] : ShortEnvironmentNames()) {
    if (path == field.path) names.push_back(absl::StrCat("`", name, "`"));
  }
  return absl::StrJoin(names, ", ");
}

const char* TakenBy(Taken taken) {
  switch (taken) {
    case Taken::kAtRestart:
      return "restart";
    case Taken::kByNewSessions:
      return "new sessions";
    case Taken::kAtReload:
      return "reload";
  }
  return "";
}

}  // namespace

std::string ConfigReference() {
  std::string text = kHead;
  std::string open;
  for (const ConfigField& field : ConfigFields()) {
    if (field.print == nullptr) continue;  // an unsupported setting
    const std::string section = field.path.substr(0, field.path.find('.'));
    if (section != open) {
      open = section;
      absl::StrAppend(&text, "\n## ", section,
                      "\n\n| setting | value | default | meaning | environment | taken by |\n"
                      "|---|---|---|---|---|---|\n");
    }
    absl::StrAppend(&text, "| `", field.path, "` | ", Cell(field.type), " | ", Cell(Default(field)),
                    " | ", Cell(field.meaning), " | ", Environment(field), " | ",
                    TakenBy(field.taken), " |\n");
  }
  return text;
}

}  // namespace ferry
