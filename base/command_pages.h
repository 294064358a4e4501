// SPDX-License-Identifier: Apache-2.0
// Describes a program's command line for other readers: its manual page, and what shells need to
// complete it. Made from the CLI::App that parses the command line, so that the two cannot differ.
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace ferry {

// One command, or the program itself, with what may follow it.
struct CommandPage {
  struct Option {
    std::vector<std::string> names;  // "--key", "-k"; none: the option is told by its place
    std::string value;               // "TEXT"; "": the option takes no value
    std::string place;               // "file"; "" if the option has names
    bool required = false;
    std::string description;
  };
  std::string path;  // "ferryctl program run"
  std::string name;  // "run"
  std::string description;
  std::vector<Option> options;
  std::vector<CommandPage> commands;

  // `App` is CLI::App, which this folder does not include. `path`: the program's name.
  template <typename App>
  static CommandPage Of(const App& app, const std::string& path) {
    CommandPage page{path, app.get_name(), app.get_description(), {}, {}};
    for (const auto* option : app.get_options()) {
      if (!option->get_group().empty()) page.options.push_back(OptionOf(*option));
    }
    for (const App* command : app.get_subcommands([](const App*) { return true; })) {
      if (command->get_group().empty()) continue;  // hidden
      page.commands.push_back(Of(*command, absl::StrCat(path, " ", command->get_name())));
    }
    return page;
  }

 private:
  template <typename CliOption>
  static Option OptionOf(const CliOption& option) {
    Option page;
    for (const std::string& name : option.get_snames()) page.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) page.names.push_back("--" + name);
    if (page.names.empty()) page.place = option.get_single_name();
    if (option.get_type_size() > 0) page.value = option.get_type_name();
    page.required = option.get_required();
    page.description = option.get_description();
    return page;
  }
};

// The manual page of a program, in the macros of man(7): all its commands on one page.
class ManualPage {
 public:
  struct About {
    int section = 1;
    std::string version;
    std::string footer;    // the last lines of the program's help
    std::string see_also;  // "ferryd(8)"
  };
  static std::string Print(const CommandPage& program, const About& about) {
    std::string text =
        absl::StrCat(".TH ", absl::AsciiStrToUpper(program.name), " ", about.section,
                     " \"\" \"Ferry ", about.version, "\"\n.SH NAME\n", program.name, " \\- ",
                     Escaped(Summary(program)), "\n.SH SYNOPSIS\n.B ", program.name, "\n",
                     Usage(program), "\n.SH DESCRIPTION\n", Escaped(program.description), "\n");
    absl::StrAppend(&text, ".SH OPTIONS\n", Options(program));
    if (!program.commands.empty()) absl::StrAppend(&text, ".SH COMMANDS\n", Commands(program));
    absl::StrAppend(&text, ".SH NOTES\n.nf\n", Escaped(about.footer), "\n.fi\n");
    if (!about.see_also.empty()) absl::StrAppend(&text, ".SH SEE ALSO\n", about.see_also, "\n");
    return text;
  }

 private:
  // The description without the full stop at its end.
  static std::string Summary(const CommandPage& page) {
    return std::string(absl::StripTrailingAsciiWhitespace(
        absl::string_view(page.description)
            .substr(0, page.description.find_last_not_of(". ") + 1)));
  }
  // Escapes what groff would interpret: dashes that are to be copied, backslashes, and a full stop
  // or apostrophe at the start of a line.
  static std::string Escaped(const std::string& text) {
    std::vector<std::string> lines =
        absl::StrSplit(absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}}), '\n');
    for (std::string& line : lines) {
      if (absl::StartsWith(line, ".") || absl::StartsWith(line, "'")) line.insert(0, "\\&");
    }
    return absl::StrJoin(lines, "\n");
  }
  static std::string Usage(const CommandPage& page) {
    std::string text = "[\\fIoptions\\fR]";
    for (const CommandPage::Option& option : page.options) {
      if (option.place.empty()) continue;
      const std::string place = absl::StrCat("\\fI", Escaped(option.place), "\\fR");
      absl::StrAppend(&text, " ", option.required ? place : absl::StrCat("[", place, "]"));
    }
    return absl::StrCat(text, page.commands.empty() ? "" : " \\fIcommand\\fR ...");
  }
  static std::string Options(const CommandPage& page) {
    std::string text;
    for (const CommandPage::Option& option : page.options) {
      const std::string name =
          option.place.empty()
              ? absl::StrCat("\\fB", Escaped(absl::StrJoin(option.names, ", ")), "\\fR")
              : absl::StrCat("\\fI", Escaped(option.place), "\\fR");
      absl::StrAppend(&text, ".TP\n", name,
                      option.value.empty() || !option.place.empty()
                          ? ""
                          : absl::StrCat(" \\fI", Escaped(option.value), "\\fR"),
                      "\n", Escaped(option.description), option.required ? " (required)" : "",
                      "\n");
    }
    return text;
  }
  static std::string Commands(const CommandPage& page) {
    std::string text;
    for (const CommandPage& command : page.commands) {
      absl::StrAppend(&text, ".SS \"", Escaped(command.path), "\"\n.B ", Escaped(command.path),
                      "\n", Usage(command), "\n.PP\n", Escaped(command.description), "\n",
                      Options(command), Commands(command));
    }
    return text;
  }
};

}  // namespace ferry
