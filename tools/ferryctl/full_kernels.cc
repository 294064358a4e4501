// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/full_kernels.h"

#include <poll.h>

#include <algorithm>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"

namespace ferry::tools {

absl::Status AwaitFullKernels(const Globals& globals) {
  namespace admin = ferry::admin::v1;
  constexpr absl::Duration kPatience = absl::Minutes(2);
  ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
  const absl::Time until = MonotonicNow() + kPatience;
  for (int pause_ms = 1; MonotonicNow() < until; pause_ms = std::min(2 * pause_ms, 50)) {
    admin::ListJobsResponse response;
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      return stub.ListJobs(context, admin::ListJobsRequest(), &response);
    }));
    const auto& rows = response.programs();
    if (std::all_of(rows.begin(), rows.end(),
                    [](const admin::ProgramRow& row) { return row.waiting_kernels() == 0; })) {
      return absl::OkStatus();
    }
    poll(nullptr, 0, pause_ms);
  }
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
               "wait for kernels: the daemon still compiles some");
}

}  // namespace ferry::tools
