// SPDX-License-Identifier: Apache-2.0
// The directory of the daemon's sockets, safe beside other users: nothing in it is taken that
// somebody else has prepared, and no link is followed. Any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "daemon/socket_access.h"

namespace ferry {

// Makes `path` and the directories in it, with their modes; all of them belong to this process's
// user afterwards and nobody else may write there. The result is the lock on it, held as long as
// the daemon lives, however it ends: two daemons must not take each other's sockets away.
// PERMISSION_DENIED/CONFIG_INVALID if it is another user's, or a link; ALREADY_EXISTS if another
// daemon has it.
// `client` and `admin` are who their sockets are for.
absl::StatusOr<UniqueFd> TakeRuntimeDir(const std::string& path, SocketAccess client,
                                        SocketAccess admin);

}  // namespace ferry
