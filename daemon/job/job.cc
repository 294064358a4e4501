// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/job.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

absl::Status PoisonedBy(TransferId cause, const absl::Status& status, const char* what,
                        const char* how) {
  return Error(absl::StatusCode::kAborted, Reason::kPoisoned,
               absl::StrCat(what, SequenceOf(cause), ", ", how,
                            ", failed: ", ReasonName(ReasonOf(status)), ": ", status.message()));
}

absl::Status WithHolders(const absl::Status& status, const Job& job, const SessionMap& sessions) {
  if (!HasReason(status, Reason::kDeviceMemory)) return status;
  const LocalDevice* const device = job.device->gpu == nullptr ? nullptr : job.device;
  return WithText(status, absl::StrCat(status.message(),
                                       "; largest holders: ", sessions.LargestHolders(device)));
}

}  // namespace ferry
