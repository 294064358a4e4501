// SPDX-License-Identifier: Apache-2.0
// The commands with which operators end things: `transfers cancel`, `sessions close`. Both return
// as Command::Run does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/ferryctl/admin_client.h"

namespace ferry::tools {

// The form of ids, and the commands that show them.
inline constexpr char kCancelledIds[] =
    "SESSION/ID, as 3/17: `ferryctl transfers` shows both, and `ferryctl program list` those of "
    "jobs";

// `ids` in the form of kCancelledIds. The second number alone is enough if exactly one session has
// a transfer or job with it in flight.
absl::StatusOr<int> CancelTransfers(AdminClient& client, const Globals& globals,
                                    const std::vector<std::string>& ids);
absl::StatusOr<int> EndSession(AdminClient& client, const Globals& globals, uint64_t session);

}  // namespace ferry::tools
