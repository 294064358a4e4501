// SPDX-License-Identifier: Apache-2.0
// What other programs read of ferryctl's command line: the manual page, and completion for shells.
// Pure; any thread.
#pragma once

#include <string>

namespace ferry {
struct CommandPage;
}

namespace ferry::tools {

// A script that a shell reads to complete commands, subcommands, options and files. `shell`:
// "bash", "zsh" or "fish"; for another shell returns "".
std::string CompletionScript(const CommandPage& program, const std::string& shell);

}  // namespace ferry::tools
