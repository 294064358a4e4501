// SPDX-License-Identifier: Apache-2.0
// Numbers of a session as the wire has them: its limits, or what it uses. Home: any thread.
#pragma once

#include "daemon/attach.h"
#include "ferry/v1/session.pb.h"

namespace ferry {

inline void SetUse(const SessionUse& use, v1::SessionLimits* out) {
  out->set_bytes(use.bytes);
  out->set_arenas(use.arenas);
  out->set_transfers_in_flight(use.transfers_in_flight);
  out->set_batch_transfers(use.batch_transfers);
}

}  // namespace ferry
