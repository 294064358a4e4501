// SPDX-License-Identifier: Apache-2.0
#include "daemon/intake.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

absl::Status TakesNone(absl::string_view what) {
  return Error(absl::StatusCode::kUnavailable, Reason::kDraining,
               absl::StrCat("post ", what, ": the daemon drains and takes no new ones"));
}

Intake TakeIn(Session& session, PostBatch& batch, absl::Time now, const IntakeChecks& checks) {
  Intake intake;
  PostReply& reply = intake.reply;
  if (std::optional<PostReply> before = session.requests().Find(batch)) {
    reply = *std::move(before);
    return intake;
  }
  if (!checks.refusal.ok()) {
    reply.status = checks.refusal;
    return intake;
  }
  reply.violations = std::move(batch.violations);
  if (!checks.device.ok()) {
    reply.violations.push_back({"device_id", checks.device});
  } else {
    std::vector<Violation> own = session.CheckAndComplete(batch, now);
    reply.violations.insert(reply.violations.end(), std::make_move_iterator(own.begin()),
                            std::make_move_iterator(own.end()));
    checks.violations(reply.violations);
  }
  if (!reply.violations.empty()) {
    reply.status = RefusedBatch(reply.violations, batch.size);
    return intake;
  }
  reply = session.Admit(batch);
  session.requests().Remember(batch, reply);
  intake.taken = true;
  return intake;
}

}  // namespace ferry
