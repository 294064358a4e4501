// SPDX-License-Identifier: Apache-2.0
// All findings of `ferryctl doctor`; `ferryctl support` uses them too. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/ferryctl/findings.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

// Asks the daemon, if it can be reached, and looks at this host; also whether the daemon's ports
// and those of its peers can be reached. `config`: a file with which the daemon is to start; "":
// the usual file, and only if no daemon serves. `others`: runtime directories of daemons of other
// nodes, which are asked for their links.
Findings Examine(const Globals& globals, const std::string& config = "",
                 const std::vector<std::string>& others = {});
nlohmann::ordered_json FindingsJson(const Findings& findings);

}  // namespace ferry::tools
