// SPDX-License-Identifier: Apache-2.0
// What gRPC is told to connect to. It reads a target as a URI: of a path with '%41', '#' or '?' in
// it it would take another one, or none, and of a host whose name is a scheme ("unix:7411") a
// socket. So every target is made here. Any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// Of a Unix socket, as its path is, relative too.
std::string UnixTarget(absl::string_view path);
// Of "host:port", "192.0.2.1:7411" or "[2001:db8::1%eth0]:7411".
std::string HostTarget(absl::string_view address);

}  // namespace ferry
