// SPDX-License-Identifier: Apache-2.0
// Whether the socket that a peer says is its own can be connected to. To look up a path may wait
// for ever where a directory of it is another user's: he may have mounted a file system there that
// does not answer (FUSE), and control would wait with it. So each directory is looked at, by what
// the kernel knows of it without asking its file system, before it is entered. Any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace ferry {

// OK if `path` (absolute) is a socket's, and every directory and link on the way there, also the
// last one, is root's or of a user whom `trusts` says is trusted. Whose the socket is nobody asks
// here: who listens there is seen when it is connected to. PERMISSION_DENIED/NOT_ALLOWED with what
// is in the way and its uid.
absl::Status CheckPeerPath(const std::string& path, absl::FunctionRef<bool(uid_t)> trusts);

}  // namespace ferry
