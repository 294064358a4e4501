// SPDX-License-Identifier: Apache-2.0
// Everything that `ferryctl doctor` finds, for others that tell it too. One thread.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/ferryctl/findings.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

// Asks the daemon, if it can be reached, and looks at this host.
Findings Examine(const Globals& globals);
nlohmann::ordered_json FindingsJson(const Findings& findings);

}  // namespace ferry::tools
