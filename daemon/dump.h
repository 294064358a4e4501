// SPDX-License-Identifier: Apache-2.0
// The daemon's state as text, sorted and stable: what `ferryctl dump` prints. Sections: node,
// devices, peers, sessions, transfers, jobs, flight recorder. Home: control.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "daemon/job/job_table.h"
#include "daemon/local_devices.h"
#include "daemon/peer/peer_table.h"
#include "daemon/session/session_table.h"
#include "transfer/engine_view.h"

namespace ferry {

std::string DumpState(const std::string& node, Incarnation incarnation, absl::Time now,
                      const LocalDevices& devices, const PeerTable& peers, SessionTable& sessions,
                      const EngineView& transfers, const JobTable& jobs);

}  // namespace ferry
