// SPDX-License-Identifier: Apache-2.0
// absl::Status to and from the wire: google.rpc.Status with ErrorInfo (always), BadRequest (bad
// entries of a batch) and RetryInfo (refusals that pass). Any thread.
#pragma once

#include <google/protobuf/duration.pb.h>
#include <grpcpp/support/status.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/post.h"
#include "google/rpc/status.pb.h"

namespace ferry {

void ToProto(const absl::Status& status, const std::vector<Violation>& violations,
             google::rpc::Status* out);
absl::Status FromProto(const google::rpc::Status& proto);
void SetDuration(absl::Duration duration, google::protobuf::Duration* out);

// With the google.rpc.Status as grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status, const std::vector<Violation>& violations = {});

}  // namespace ferry
