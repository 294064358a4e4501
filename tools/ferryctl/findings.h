// SPDX-License-Identifier: Apache-2.0
// What `ferryctl doctor` finds, and what it looks at beside the daemon. Reads files and nothing
// else; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ferry/admin/v1/admin.pb.h"

namespace ferry::tools {

// Ordered: what is wrong keeps Ferry from working, a warning makes it slower or likely to fail
// later, a note is to be known.
enum class Severity { kOk, kNote, kWarning, kWrong };

struct Finding {
  Severity severity = Severity::kOk;
  std::string check;   // "descriptors"
  std::string found;   // "1,024 may be open"
  std::string advice;  // what to do, in words or as a command; "" if nothing
};
using Findings = std::vector<Finding>;

// Of this host and the daemon's process (0: none that is known). `root` is what "/" is, for tests.
Findings HostFindings(const std::string& root, uint64_t daemon_pid, bool has_gpus, bool has_ucx);

// Of the daemon itself: its state, version against `own_version`, libraries and peers.
Findings DaemonFindings(const ferry::admin::v1::GetStatusResponse& status,
                        const std::string& own_version);

// Whether the daemon's GPUs reach one another's memory, and whether memory of a process in
// `own_namespace` can be handed to it (inodes of PID namespaces; 0: not known).
Findings GpuFindings(const ferry::admin::v1::ListDevicesResponse& devices,
                     uint64_t daemon_namespace, uint64_t own_namespace);

// A version, or how many there are, and not why there is none.
bool IsVersion(const std::string& text);

// Of the roads from one of the daemon's devices to one of `peer`.
Findings RouteFindings(const std::string& peer, bool gpus,
                       const ferry::admin::v1::ExplainRouteResponse& routes);

}  // namespace ferry::tools
