// SPDX-License-Identifier: Apache-2.0
// Ends transfers, jobs and sessions of others, and releases barred programs, at an operator's
// request. Must be called on control, except Release.
#pragma once

#include "absl/status/status.h"
#include "daemon/job/barred_programs.h"
#include "daemon/rpc/core.h"
#include "ferry/admin/v1/admin.pb.h"

namespace ferry {

absl::Status Cancel(RpcCore& core, const admin::v1::CancelTransfersRequest& request,
                    admin::v1::CancelTransfersResponse* response);
absl::Status Close(RpcCore& core, const admin::v1::CloseSessionRequest& request,
                   admin::v1::CloseSessionResponse* response);
// Any thread that may wait for the disk.
absl::Status Release(BarredPrograms& barred, const admin::v1::ReleaseProgramsRequest& request,
                     admin::v1::ReleaseProgramsResponse* response);

}  // namespace ferry
