// SPDX-License-Identifier: Apache-2.0
// The answer to AdminService.GetActivity. On control.
#pragma once

#include <cstddef>

#include "daemon/rpc/admin_service.h"
#include "ferry/admin/v1/admin.pb.h"

namespace ferry {

// `limit`: how many transfers the answer lists at most.
void SetActivity(const AdminCore& core, size_t limit, admin::v1::GetActivityResponse* out);

}  // namespace ferry
