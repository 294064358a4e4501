// SPDX-License-Identifier: Apache-2.0
#include "transfer/posted.h"

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/status.h"
#include "transfer/types.h"

namespace ferry {

std::string NameOf(const Posted& half) {
  const bool send = half.spec.side == Side::kSend;
  return absl::StrCat(send ? "the send" : "the receive", half.count() > 1 ? "s of " : " of ",
                      Describe(half.spec.key));
}

std::string WithinText(const Posted& half) {
  return absl::StrCat(" within ", DurationText(half.spec.deadline - half.posted));
}

absl::Status ExecutingStatus(const Posted& half) {
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting,
               absl::StrCat(NameOf(half), ": launched by ", RouteName(half.route), ", but not over",
                            WithinText(half)));
}

}  // namespace ferry
