// SPDX-License-Identifier: Apache-2.0
// Errors at the edge of the tools: made of those of libferry and gRPC, and shown to people. Inside
// the tools an error is an absl::Status with a Reason, as everywhere; the bad entries of a refused
// batch are a payload of it. Any thread.
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

// Takes ownership of `status`; NULL is OK.
absl::Status FromFerry(ferry_status* status);
// Takes over the google.rpc details that ferryd attaches.
absl::Status FromGrpc(const grpc::Status& status);

absl::Status WithViolations(absl::Status status, const std::vector<Violation>& violations);
std::vector<Violation> ViolationsOf(const absl::Status& status);

// The error for people: "NOT_FOUND ARENA_NOT_FOUND: text" (the text has the first violation in it),
// a line for each further violation, and when to try again if that can help. With `json`, all of it
// as one JSON object.
std::string DescribeFailure(const absl::Status& status, bool json);

// The ExitStatus that stands for an error.
int ExitStatusOf(const absl::Status& status);

}  // namespace ferry::tools
