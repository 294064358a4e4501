// SPDX-License-Identifier: Apache-2.0
#include "daemon/socket_access.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/config/values.h"

namespace ferry {

absl::StatusOr<SocketAccess> SocketAccess::From(const Config::SocketAccess& settings) {
  SocketAccess access(ParseMode(settings.mode).value_or(0));
  const auto find = [](const std::string& name, auto find_in_host, const char* what,
                       auto& to) -> absl::Status {
    if (name.empty()) return absl::OkStatus();
    const std::optional<uint32_t> id = find_in_host(name);
    if (!id) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
                   absl::StrCat("sockets: there is no ", what, " '", name, "'"));
    }
    to = *id;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(find(settings.owner, FindUser, "user", access.owner));
  RETURN_IF_ERROR(find(settings.group, FindGroup, "group", access.group));
  return access;
}

mode_t SocketAccess::directory_mode() const {
  mode_t all = 0700;
  if ((mode & 0070) != 0) all |= 0050;
  if ((mode & 0007) != 0) all |= 0005;
  // To the directory the socket's owner is one of the others.
  if (owner != kOwnUser && owner != geteuid()) all |= 0001;
  return all;
}

}  // namespace ferry
