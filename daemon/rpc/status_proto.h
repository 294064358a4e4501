// SPDX-License-Identifier: Apache-2.0
// Turns absl::Status into google.rpc.Status and back. The details are ErrorInfo (always),
// BadRequest (the bad entries of a batch, or the one field that the metadata has as "field"), and
// RetryInfo (for refusals that pass). Any thread.
#pragma once

#include <google/protobuf/duration.pb.h>
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/post.h"
#include "google/rpc/status.pb.h"

namespace ferry {

// At most `max` bytes of `text`, with '?' in place of bytes that are not UTF-8. Texts come from
// clients too, and were cut to length on the way. A string field that is not UTF-8 could not be
// parsed at the other end, and would take the whole link down.
std::string BoundedText(absl::string_view text, size_t max);

void ToProto(const absl::Status& status, const std::vector<Violation>& violations,
             google::rpc::Status* out);
absl::Status FromProto(const google::rpc::Status& proto);
void SetDuration(absl::Duration duration, google::protobuf::Duration* out);

// The gRPC status, with the google.rpc.Status as grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status, const std::vector<Violation>& violations = {});

}  // namespace ferry
