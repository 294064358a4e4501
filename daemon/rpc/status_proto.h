// SPDX-License-Identifier: Apache-2.0
// absl::Status to and from the wire: google.rpc.Status with ErrorInfo (always), BadRequest (bad
// entries of a batch, or the one field that the metadata has as "field") and RetryInfo (refusals
// that pass). Any thread.
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

// Of `text` at most `max` bytes, with '?' for what is no UTF-8. Texts come from clients too, and
// were cut to length on the way; a string field that is not UTF-8 cannot be parsed at the other
// end, and would take the whole link down with it.
std::string BoundedText(absl::string_view text, size_t max);

void ToProto(const absl::Status& status, const std::vector<Violation>& violations,
             google::rpc::Status* out);
absl::Status FromProto(const google::rpc::Status& proto);
void SetDuration(absl::Duration duration, google::protobuf::Duration* out);

// With the google.rpc.Status as grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status, const std::vector<Violation>& violations = {});

}  // namespace ferry
