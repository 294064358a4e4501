// SPDX-License-Identifier: Apache-2.0
// Finds the network interface of this host that has an address. Libraries with sockets of their own
// (NCCL, UCX) are given its name, so that their bytes go where the links go.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// The interface that has the first of `host`'s addresses that this host has; "" if this host has
// none of them. `host` is a name or a numeric IPv4 or IPv6 address. A name may be looked up at a
// DNS server, which may block.
std::string InterfaceOf(absl::string_view host);

}  // namespace ferry
