// SPDX-License-Identifier: Apache-2.0
// Makes the targets that gRPC connects to, and shortens what gRPC says when it cannot. gRPC reads a
// target as a URI: it would misread a path with '%41', '#' or '?', and take a host named like a
// scheme ("unix:7411") for a socket. So every target is made here. Any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// The target of a Unix socket at `path`, which may be relative.
std::string UnixTarget(absl::string_view path);
// The target of "host:port", "192.0.2.1:7411" or "[2001:db8::1%eth0]:7411".
std::string HostTarget(absl::string_view address);

// Shortens the text of a failed call. gRPC wraps a failed connect in several layers, of which the
// address and the cause are kept: "connect to 192.0.2.1:7411: Connection refused". Any other text
// is returned as it is.
std::string GrpcErrorText(absl::string_view text);

}  // namespace ferry
