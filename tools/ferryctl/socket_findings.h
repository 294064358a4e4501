// SPDX-License-Identifier: Apache-2.0
// What `ferryctl doctor` finds of the daemon's sockets. Any thread.
#pragma once

#include "tools/ferryctl/findings.h"

namespace ferry::tools {

// Of each socket in `runtime_dir`: whether it is there and this user may connect, who else may, and
// whether they get to it.
Findings SocketFindings(const std::string& runtime_dir);

}  // namespace ferry::tools
