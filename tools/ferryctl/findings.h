// SPDX-License-Identifier: Apache-2.0
// The findings of `ferryctl doctor`, except those of links, ports and sockets. Reads files and
// nothing else; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ferry/admin/v1/admin.pb.h"

namespace ferry::tools {

// In order of weight: kWrong keeps Ferry from working, kWarning makes it slower or likely to fail
// later, kNote is worth knowing.
enum class Severity { kOk, kNote, kWarning, kWrong };

struct Finding {
  Severity severity = Severity::kOk;
  std::string check;   // what was looked at: "descriptors"
  std::string found;   // "1,024 may be open"
  std::string advice;  // what to do, in words or as a command; "" if there is nothing to do
};
using Findings = std::vector<Finding>;

// Findings about this host and the daemon's process (pid 0: none is known). `root` stands for "/",
// for tests.
Findings HostFindings(const std::string& root, uint64_t daemon_pid, bool has_gpus, bool has_ucx);

// Findings about the daemon: its state, its version compared with `own_version`, libraries and
// peers.
Findings DaemonFindings(const ferry::admin::v1::GetStatusResponse& status,
                        const std::string& own_version);

// Findings about the daemon's GPUs: whether they reach one another's memory, and whether the daemon
// can take memory of a process in `own_namespace`. Namespaces are inodes of PID namespaces; 0: not
// known.
Findings GpuFindings(const ferry::admin::v1::ListDevicesResponse& devices,
                     uint64_t daemon_namespace, uint64_t own_namespace);

// Whether the text is a version, or a number of things, rather than the reason why there is none.
bool IsVersion(const std::string& text);

// Findings about the routes from one of the daemon's devices to one of `peer`.
Findings RouteFindings(const std::string& peer, bool gpus,
                       const ferry::admin::v1::ExplainRouteResponse& routes);

}  // namespace ferry::tools
