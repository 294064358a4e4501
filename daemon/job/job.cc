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

}  // namespace ferry
