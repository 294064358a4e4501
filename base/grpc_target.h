// SPDX-License-Identifier: Apache-2.0
// What gRPC is told to connect to, and what it says when it cannot. It reads a target as a URI: of
// a path with '%41', '#' or '?' in it it would take another one, or none, and of a host whose name
// is a scheme ("unix:7411") a socket. So every target is made here. Any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// Of a Unix socket, as its path is, relative too.
std::string UnixTarget(absl::string_view path);
// Of "host:port", "192.0.2.1:7411" or "[2001:db8::1%eth0]:7411".
std::string HostTarget(absl::string_view address);

// Of the text of a call that failed: gRPC says that it could not connect in layers of its own, of
// which the address and the cause are left: "connect to 192.0.2.1:7411: Connection refused". Other
// texts stay as they are.
std::string GrpcErrorText(absl::string_view text);

}  // namespace ferry
