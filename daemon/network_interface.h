// SPDX-License-Identifier: Apache-2.0
// Which network interface of this host has an address: what libraries with sockets of their own are
// given, so that their bytes go where the links go.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// Of `host`, a name or a numeric IPv4 or IPv6 address: the interface that has the first of its
// addresses that this host has; "" if it has none of them. A name may be asked for at a DNS server.
std::string InterfaceOf(absl::string_view host);

}  // namespace ferry
