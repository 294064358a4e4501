// SPDX-License-Identifier: Apache-2.0
// Fills in the answer to AdminService.GetActivity: what moves now. Must be called on control.
#pragma once

#include <cstddef>

#include "daemon/rpc/admin_service.h"
#include "ferry/admin/v1/admin.pb.h"

namespace ferry {

// `limit`: the most transfers that the answer lists.
void SetActivity(const AdminCore& core, size_t limit, admin::v1::GetActivityResponse* out);

}  // namespace ferry
