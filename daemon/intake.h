// SPDX-License-Identifier: Apache-2.0
// TakeIn admits every batch, of transfers or of jobs, to a session. It repeats the earlier answer
// to a batch that was posted before. It collects the violations that any checker finds. Only if
// there are none the batch gets ids and pins its arenas: all or nothing. Home: control.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/post.h"
#include "daemon/session/session.h"

namespace ferry {

// UNAVAILABLE/DRAINING: no new `what` ("transfers", "jobs") are taken.
absl::Status TakesNone(absl::string_view what);

// What only who carries the batch out can tell.
struct IntakeChecks {
  // Why nothing of the kind is taken now, whatever is in the batch; else OK.
  absl::Status refusal;
  // What is wrong with the batch's device; else OK. Nothing else of the batch is looked at then:
  // such a device has neither arenas nor an 'over' counter.
  absl::Status device;
  // Adds what is wrong with the batch, which the session has completed.
  absl::FunctionRef<void(std::vector<Violation>&)> violations;
};

struct Intake {
  PostReply reply;
  // The batch has its ids: carry it out. False: it was refused, or is carried out already.
  bool taken = false;
};

Intake TakeIn(Session& session, PostBatch& batch, absl::Time now, const IntakeChecks& checks);

}  // namespace ferry
