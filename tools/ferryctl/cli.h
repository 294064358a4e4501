// SPDX-License-Identifier: Apache-2.0
// ferryctl's command line: flags, the command, the command's flags. Turns the result into an exit
// status.
#pragma once

namespace ferry::tools {

int RunFerryctl(int argc, char** argv);

}  // namespace ferry::tools
