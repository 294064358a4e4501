// SPDX-License-Identifier: Apache-2.0
// The one place where clients' requests become plain data. Checks everything that a request shows
// by itself: lengths, bounds, enums, bytes against type and shape, overlaps. What needs the session
// (arenas, quotas) the session checks. Any thread.
#pragma once

#include <optional>

#include "daemon/attach.h"
#include "daemon/post.h"
#include "daemon/rpc/plain_request.h"
#include "ferry/v1/job.pb.h"
#include "ferry/v1/transfer.pb.h"

namespace ferry {

// Entries that are wrong are listed in the batch's `violations`. `bytes`: the size of the request
// on the wire, if that is known.
PostBatch Convert(const v1::CrossHostSendRequest& request,
                  std::optional<size_t> bytes = std::nullopt);
PostBatch Convert(const v1::CrossHostReceiveRequest& request,
                  std::optional<size_t> bytes = std::nullopt);
PostBatch Convert(const PlainRequest& request, Side side, size_t bytes);
PostBatch Convert(const v1::RunRequest& request);

void ToProto(const DeviceInfo& device, v1::Device* out);

}  // namespace ferry
