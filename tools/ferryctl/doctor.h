// SPDX-License-Identifier: Apache-2.0
// Everything that `ferryctl doctor` finds, for others that tell it too. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/ferryctl/findings.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

// Asks the daemon, if it can be reached, and looks at this host, also whether its ports and those
// of its peers are reached. `config`: a file that the daemon is to start with; "": the usual one,
// and only where no daemon serves. `others`: runtime directories of other nodes' daemons, which are
// asked for their links.
Findings Examine(const Globals& globals, const std::string& config = "",
                 const std::vector<std::string>& others = {});
nlohmann::ordered_json FindingsJson(const Findings& findings);

}  // namespace ferry::tools
