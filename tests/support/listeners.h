// SPDX-License-Identifier: Apache-2.0
// By what sockets a process can be reached, as the kernel lists them. Any thread.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ferry::testing {

// "tcp 127.0.0.1:7411", "tcp [::]:80": what listens; "udp 0.0.0.0:53": what is bound; "raw",
// "packet", ... : sockets of what is not known here. "unix /run/x.sock": what listens, or takes
// datagrams, under a name that others can know ("unix @x": in no directory). Not what it is
// connected by.
std::set<std::string> ListenersOf(pid_t process);

}  // namespace ferry::testing
