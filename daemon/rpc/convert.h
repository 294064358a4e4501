// SPDX-License-Identifier: Apache-2.0
// The one place where requests of clients become plain data, and where everything is checked that a
// request shows by itself: lengths, bounds, enums, bytes against type and shape, overlaps. What
// needs the session (arenas, quotas) is checked there. Any thread.
#pragma once

#include <optional>

#include "daemon/attach.h"
#include "daemon/post.h"
#include "daemon/rpc/plain_request.h"
#include "ferry/v1/job.pb.h"
#include "ferry/v1/transfer.pb.h"

namespace ferry {

// Bad entries are in the batch's `violations`. `bytes`: of the request as it came, if that is
// known.
PostBatch Convert(const v1::CrossHostSendRequest& request,
                  std::optional<size_t> bytes = std::nullopt);
PostBatch Convert(const v1::CrossHostReceiveRequest& request,
                  std::optional<size_t> bytes = std::nullopt);
PostBatch Convert(const PlainRequest& request, Side side, size_t bytes);
PostBatch Convert(const v1::RunRequest& request);

void ToProto(const DeviceInfo& device, v1::Device* out);

}  // namespace ferry
