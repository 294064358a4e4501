// SPDX-License-Identifier: Apache-2.0
// Checks whether the socket that a peer says is its own can be connected to without danger. To look
// up a path may block for ever: a directory on the way may be a file system that another user has
// mounted (FUSE) and that does not answer, and control would wait with it. So each directory is
// looked at before it is entered, by what the kernel knows of it without asking its file system.
// Any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace ferry {

// OK if `path` (absolute) names a socket, and every directory and link on the way, also a link at
// its end, belongs to root or to a user whom `trusts` accepts. The owner of the socket itself is
// not checked: who listens there is seen when it is connected to. PERMISSION_DENIED/NOT_ALLOWED
// names what is in the way and its uid.
absl::Status CheckPeerPath(const std::string& path, absl::FunctionRef<bool(uid_t)> trusts);

}  // namespace ferry
