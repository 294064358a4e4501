// SPDX-License-Identifier: Apache-2.0
// Findings of `ferryctl doctor` about the daemon's sockets. Any thread.
#pragma once

#include "tools/ferryctl/findings.h"

namespace ferry::tools {

// For each socket in `runtime_dir`: whether it exists, whether this user may connect, who else may,
// and whether they can reach it through the directories.
Findings SocketFindings(const std::string& runtime_dir);

}  // namespace ferry::tools
