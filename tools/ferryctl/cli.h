// SPDX-License-Identifier: Apache-2.0
// The command line: flags before the command, the command, its flags; and from a result to an exit
// status.
#pragma once

namespace ferry::tools {

int RunFerryctl(int argc, char** argv);

}  // namespace ferry::tools
