// SPDX-License-Identifier: Apache-2.0
// What `ferryctl doctor` finds of the links between other nodes. Pure; any thread.
#pragma once

#include <vector>

#include "tools/ferryctl/findings.h"

namespace ferry::tools {

// `statuses`: of daemons of several nodes, the first one that of this node, whose own links
// DaemonFindings tells. Of each other pair of nodes of which at least one was asked: whether their
// link is up, and what each end says if it is not. A daemon knows its own links and no others.
Findings LinkFindings(const std::vector<ferry::admin::v1::GetStatusResponse>& statuses);

}  // namespace ferry::tools
