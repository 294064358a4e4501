// SPDX-License-Identifier: Apache-2.0
// Which Ferry this is, for people.
#pragma once

#include <string>

namespace ferry {

// "0.1.0 (commit 1a2b3c4d5e6f)"; "0.1.0" if no program has said of which commit it was made. Any
// thread.
const std::string& Version();
// Of a program, first thing in main: "" if it is not known, as in a tarball.
void SetCommit(const std::string& commit);

}  // namespace ferry
