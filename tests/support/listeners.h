// SPDX-License-Identifier: Apache-2.0
// The sockets by which a process can be reached, as the kernel lists them. Any thread.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ferry::testing {

// Lists "tcp 127.0.0.1:7411" or "tcp [::]:80" for a socket that listens; "udp 0.0.0.0:53" for one
// that is bound; "unix /run/x.sock" for one that listens, or takes datagrams, under a name that
// others can know ("unix @x": in no directory); "raw", "packet", ... for other kinds. Connections
// are not listed.
std::set<std::string> ListenersOf(pid_t process);

}  // namespace ferry::testing
