// SPDX-License-Identifier: Apache-2.0
// Who may connect to a Unix socket, and so use the directory that it is in. A value; any thread.
#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"

namespace ferry {

struct SocketAccess {
  static constexpr uid_t kOwnUser = static_cast<uid_t>(-1);
  static constexpr gid_t kOwnGroup = static_cast<gid_t>(-1);

  // The daemon's own socket; implicit, since that is what most are.
  SocketAccess(mode_t mode) : mode(mode) {}  // NOLINT(google-explicit-constructor)
  // INVALID_ARGUMENT/CONFIG_INVALID if there is no such user or group, which may have gone since
  // the configuration was checked.
  static absl::StatusOr<SocketAccess> From(const Config::SocketAccess& settings);

  // Of the directory, which stays the daemon's and has the socket's group: whoever the socket is
  // for may pass, and look if the socket's mode is what lets them.
  mode_t directory_mode() const;

  mode_t mode;
  uid_t owner = kOwnUser;
  gid_t group = kOwnGroup;
};

}  // namespace ferry
