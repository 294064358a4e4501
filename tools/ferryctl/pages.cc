// SPDX-License-Identifier: Apache-2.0
// Commands that print what the command line is, for packages: completion, manual.
#include "tools/ferryctl/pages.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "absl/strings/substitute.h"
#include "base/command_pages.h"
#include "base/status.h"
#include "base/version.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

// Calls a function with every command and the commands below it, the program first.
void ForEach(const CommandPage& page, const std::function<void(const CommandPage&)>& visit) {
  visit(page);
  for (const CommandPage& command : page.commands) ForEach(command, visit);
}

// What follows the program's name: "program run"; "" for the program itself.
std::string Below(const CommandPage& page) {
  const size_t space = page.path.find(' ');
  return space == std::string::npos ? "" : page.path.substr(space + 1);
}

// Quotes a text with a shell's single quotes.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}, {"\n", " "}}), "'");
}

// What may follow a command, each as `show(name, description)` prints it: commands, or options,
// among them those of the program, which may follow every command.
using Show = std::function<std::string(const std::string& name, const std::string& description)>;
std::string CommandsAfter(const CommandPage& page, const Show& show) {
  return absl::StrJoin(page.commands, " ", [&](std::string* out, const CommandPage& command) {
    absl::StrAppend(out, show(command.name, command.description));
  });
}
std::string OptionsAfter(const CommandPage& program, const CommandPage& page, const Show& show) {
  std::vector<std::string> shown;
  for (const CommandPage* of : {&page, &program}) {
    for (const CommandPage::Option& option : of->options) {
      for (const std::string& name : option.names) {
        const std::string text = show(name, option.description);
        if (std::find(shown.begin(), shown.end(), text) == shown.end()) shown.push_back(text);
      }
    }
  }
  return absl::StrJoin(shown, " ");
}

// The patterns of a `case` that matches all commands, and the branches of one that says what
// follows each; in `branch` $0 stands for the commands and $1 for the options.
std::string Patterns(const CommandPage& program) {
  std::vector<std::string> patterns;
  ForEach(program, [&](const CommandPage& page) {
    if (&page != &program) patterns.push_back(Quoted(Below(page)));
  });
  return absl::StrJoin(patterns, " | ");
}
std::string Branches(const CommandPage& program, const char* branch, const Show& show) {
  std::string text;
  ForEach(program, [&](const CommandPage& page) {
    absl::StrAppend(
        &text, "    ", Quoted(Below(page)), ") ",
        absl::Substitute(branch, CommandsAfter(page, show), OptionsAfter(program, page, show)),
        " ;;\n");
  });
  return text;
}

constexpr char kBash[] = R"(# Completion of ferryctl for bash.
_ferryctl() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' word commands='' options=''
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$command${command:+ }$word" in
      @PATTERNS@) command+="${command:+ }$word" ;;
    esac
  done
  case "$command" in
@BRANCHES@  esac
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [ -n "$commands" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  else
    compopt -o filenames 2> /dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -F _ferryctl ferryctl
)";

std::string Bash(const CommandPage& program) {
  const Show name_only = [](const std::string& name, const std::string&) { return name; };
  return absl::StrReplaceAll(
      kBash, {{"@PATTERNS@", Patterns(program)},
              {"@BRANCHES@", Branches(program, "commands='$0' options='$1'", name_only)}});
}

constexpr char kZsh[] = R"(#compdef ferryctl
# Completion of ferryctl for zsh.
_ferryctl() {
  local command='' word
  local -a commands options
  for word in "${(@)words[2,CURRENT-1]}"; do
    case "$command${command:+ }$word" in
      @PATTERNS@) command+="${command:+ }$word" ;;
    esac
  done
  case "$command" in
@BRANCHES@  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}
_ferryctl "$@"
)";

std::string Zsh(const CommandPage& program) {
  const Show described = [](const std::string& name, const std::string& description) {
    return Quoted(absl::StrCat(name, ":", absl::StrReplaceAll(description, {{":", "\\:"}})));
  };
  return absl::StrReplaceAll(
      kZsh, {{"@PATTERNS@", Patterns(program)},
             {"@BRANCHES@", Branches(program, "commands=($0) options=($1)", described)}});
}

// fish has its own way with quotes.
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}, {"\n", " "}}),
                      "'");
}

// Whether the words of a command have been typed, in order.
std::string Seen(const CommandPage& page) {
  std::vector<std::string> tests;
  for (const absl::string_view word : absl::StrSplit(Below(page), ' ', absl::SkipEmpty())) {
    tests.push_back(absl::StrCat("__fish_seen_subcommand_from ", word));
  }
  return absl::StrJoin(tests, "; and ");
}

void AppendFish(const CommandPage& page, std::string& text) {
  const std::string seen = Seen(page);
  const std::string none_yet = absl::StrCat(
      seen, seen.empty() ? "" : "; and ", "not __fish_seen_subcommand_from ",
      CommandsAfter(page, [](const std::string& name, const std::string&) { return name; }));
  for (const CommandPage& command : page.commands) {
    absl::StrAppend(&text, "complete -c ferryctl -f -n ", FishQuoted(none_yet), " -a ",
                    command.name, " -d ", FishQuoted(command.description), "\n");
  }
  for (const CommandPage::Option& option : page.options) {
    if (option.names.empty()) continue;
    absl::StrAppend(&text, "complete -c ferryctl",
                    seen.empty() ? "" : absl::StrCat(" -n ", FishQuoted(seen)));
    for (const std::string& name : option.names) {
      const bool is_long = absl::StartsWith(name, "--");
      absl::StrAppend(&text, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
    }
    absl::StrAppend(&text, option.value.empty() ? "" : " -r", " -d ",
                    FishQuoted(option.description), "\n");
  }
}

std::string Fish(const CommandPage& program) {
  std::string text = "# Completion of ferryctl for fish.\n";
  ForEach(program, [&](const CommandPage& page) { AppendFish(page, text); });
  return text;
}

class CompletionCommand : public Command {
 public:
  CompletionCommand()
      : Command("completion",
                "Print a script for a shell, after which it completes ferryctl's commands and "
                "options; packages install it") {}
  void Define(CLI::App& app) override {
    app_ = app.get_parent();
    app.add_option("shell", shell_, "bash, zsh or fish")
        ->required()
        ->check(OneOf({"bash", "zsh", "fish"}));
  }
  absl::StatusOr<int> Run(const Globals&) override {
    std::printf("%s", CompletionScript(CommandPage::Of(*app_, app_->get_name()), shell_).c_str());
    return kExitOk;
  }

 private:
  const CLI::App* app_ = nullptr;
  std::string shell_;
};

class ManualCommand : public Command {
 public:
  ManualCommand() : Command("manual", "Print ferryctl's manual page, for man") {}
  void Define(CLI::App& app) override { app_ = app.get_parent(); }
  absl::StatusOr<int> Run(const Globals&) override {
    ManualPage::About about;
    about.version = Version();
    about.footer = app_->get_footer();
    about.see_also = "ferryd(8)";
    std::printf("%s", ManualPage::Print(CommandPage::Of(*app_, app_->get_name()), about).c_str());
    return kExitOk;
  }

 private:
  const CLI::App* app_ = nullptr;
};

}  // namespace

std::string CompletionScript(const CommandPage& program, const std::string& shell) {
  if (shell == "bash") return Bash(program);
  if (shell == "zsh") return Zsh(program);
  return shell == "fish" ? Fish(program) : "";
}

void AddPagesCommands(CommandList& commands) {
  commands.push_back(std::make_unique<CompletionCommand>());
  commands.push_back(std::make_unique<ManualCommand>());
}

}  // namespace ferry::tools
