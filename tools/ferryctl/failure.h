// SPDX-License-Identifier: Apache-2.0
// Errors at the edge of the tools: where they come from (libferry, gRPC) and how they are shown.
// Inside, an error is an absl::Status with a Reason as everywhere, and the bad entries of a refused
// batch as a payload. Any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ferry/ferry.h"

namespace ferry::tools {

struct Violation {
  std::string field;
  std::string text;
};

// Takes `status` (and frees it); NULL is OK.
absl::Status FromFerry(ferry_status* status);
// With the google.rpc details that ferryd attaches.
absl::Status FromGrpc(const grpc::Status& status);

absl::Status WithViolations(absl::Status status, const std::vector<Violation>& violations);
std::vector<Violation> ViolationsOf(const absl::Status& status);

// "NOT_FOUND ARENA_NOT_FOUND: text", which has the first violation in it, and a line for each
// further one, and when to try again if that can help; or all as one JSON object.
std::string DescribeFailure(const absl::Status& status, bool json);

// Which ExitStatus an error means.
int ExitStatusOf(const absl::Status& status);

}  // namespace ferry::tools
