// SPDX-License-Identifier: Apache-2.0
// The version of Ferry, for people.
#pragma once

#include <string>

namespace ferry {

// "0.2.0 (commit 1a2b3c4d5e6f)"; "0.2.0" if no program has called SetCommit. Any thread.
const std::string& Version();
// Called by a program first thing in main; "" if the commit is not known, as in a tarball.
void SetCommit(const std::string& commit);

}  // namespace ferry
