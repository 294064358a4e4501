// SPDX-License-Identifier: Apache-2.0
// Asks the daemon's gRPC health service on admin.sock. Any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpc/health/v1/health.pb.h"

namespace ferry::tools {

using ServingStatus = ::grpc::health::v1::HealthCheckResponse::ServingStatus;

// `service`: "" (the daemon), "startup", "readiness" or "liveness".
absl::StatusOr<ServingStatus> CheckHealth(const std::string& socket, const std::string& service,
                                          absl::Duration timeout);

// Asks until the service serves, also while there is no daemon. After `patience` returns what it
// said last, or UNAVAILABLE.
absl::StatusOr<ServingStatus> AwaitServing(const std::string& socket, const std::string& service,
                                           absl::Duration patience);

}  // namespace ferry::tools
