// SPDX-License-Identifier: Apache-2.0
// The directory of the daemon's sockets, safe beside other users: nothing in it is taken that
// somebody else has prepared, and no link is followed. Any thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "daemon/socket_access.h"

namespace ferry {

// For the lock of a daemon that is about to end.
struct LockPatience {
  absl::Duration most = absl::ZeroDuration();
  std::function<void(const std::string& file)> waits;  // called once if it has to be waited for
};

// Makes `path`, which is absolute, and the directories in it, with their modes; all of them belong
// to this process's user afterwards and nobody else may write there, nor in those above them (but
// root; but in those whose users each have what is their own, as in /tmp). The result is the lock
// on it, held as long as the daemon lives, however it ends: two daemons must not take each other's
// sockets away. PERMISSION_DENIED/CONFIG_INVALID if it is another user's, or a link, or if others
// may write above it; ALREADY_EXISTS if another daemon has it, and still has it after `patience`: a
// process that was killed holds its lock until its memory is taken apart, with GPUs' contexts for
// seconds. `client` and `admin` are who their sockets are for.
absl::StatusOr<UniqueFd> TakeRuntimeDir(const std::string& path, SocketAccess client,
                                        SocketAccess admin, const LockPatience& patience);

}  // namespace ferry
