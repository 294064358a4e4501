// SPDX-License-Identifier: Apache-2.0
// Owner, group and mode of a Unix socket, that is, who may connect to it; and the mode of its
// directory that fits this. A value; any thread.
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
  // INVALID_ARGUMENT/CONFIG_INVALID if there is no such user or group. (It may have been removed
  // since the configuration was checked.)
  static absl::StatusOr<SocketAccess> From(const Config::SocketAccess& settings);

  // The mode of the socket's directory, which belongs to the daemon and to the socket's group.
  // Whoever may connect to the socket may pass through the directory. Those whom the socket's mode
  // lets in may list it too.
  mode_t directory_mode() const;

  mode_t mode;
  uid_t owner = kOwnUser;
  gid_t group = kOwnGroup;
};

}  // namespace ferry
