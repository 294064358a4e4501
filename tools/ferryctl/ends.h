// SPDX-License-Identifier: Apache-2.0
// What operators end: `transfers cancel`, `sessions close`. As Command::Run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/ferryctl/admin_client.h"

namespace ferry::tools {

// How they are said, and what shows them.
inline constexpr char kCancelledIds[] =
    "SESSION/ID, as 3/17: `ferryctl transfers` shows both, and `ferryctl program list` those of "
    "jobs";

// `ids` as people say them: "SESSION/ID", or the id of a transfer or job alone, if one session has
// it in flight and no other.
absl::StatusOr<int> CancelTransfers(AdminClient& client, const Globals& globals,
                                    const std::vector<std::string>& ids);
absl::StatusOr<int> EndSession(AdminClient& client, const Globals& globals, uint64_t session);

}  // namespace ferry::tools
