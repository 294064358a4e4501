// SPDX-License-Identifier: Apache-2.0
// Takes the directory of the daemon's sockets, safely beside other users: follows no link, and
// takes nothing in it that another user has prepared. Any thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "daemon/socket_access.h"

namespace ferry {

// How long to wait for the lock of a daemon that is about to end.
struct LockPatience {
  absl::Duration most = absl::ZeroDuration();
  // Called once, if the lock has to be waited for.
  std::function<void(const std::string& file)> waits;
};

// Makes the directory `path` (absolute) and those in it for the sockets, and locks it. Afterwards
// all of them belong to this process's user and have the modes that `client` and `admin` (access to
// their sockets) ask for.
//
// Refused: a directory of another user, a link, a directory in which others may write; the same for
// the directories above, except that root may write there, and that anybody may where the sticky
// bit protects each user's files, as in /tmp. Then the error is PERMISSION_DENIED/CONFIG_INVALID.
//
// The result is the lock. The daemon holds it as long as it lives, however it ends, so that two
// daemons do not take each other's sockets away. ALREADY_EXISTS if another daemon holds it even
// after `patience`. A killed process holds its lock until its memory is taken apart, which takes
// seconds with GPU contexts.
absl::StatusOr<UniqueFd> TakeRuntimeDir(const std::string& path, SocketAccess client,
                                        SocketAccess admin, const LockPatience& patience);

}  // namespace ferry
