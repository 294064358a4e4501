// SPDX-License-Identifier: Apache-2.0
// Findings of `ferryctl doctor` about the links between other nodes. Pure; any thread.
#pragma once

#include <vector>

#include "tools/ferryctl/findings.h"

namespace ferry::tools {

// `statuses` come from daemons of several nodes; the first is this node's, and DaemonFindings has
// told its links. For each other pair of nodes of which at least one was asked: whether their link
// is up, and if not, what each end says. A daemon knows only its own links.
Findings LinkFindings(const std::vector<ferry::admin::v1::GetStatusResponse>& statuses);

}  // namespace ferry::tools
