// SPDX-License-Identifier: Apache-2.0
// What others read of ferryctl's command line: the manual page, and completion for shells. Pure;
// any thread.
#pragma once

#include <string>

namespace ferry {
struct CommandPage;
}

namespace ferry::tools {

// A script that a shell reads, after which it completes commands, their subcommands and options,
// and files. `shell`: "bash", "zsh" or "fish"; "" of another one.
std::string CompletionScript(const CommandPage& program, const std::string& shell);

}  // namespace ferry::tools
