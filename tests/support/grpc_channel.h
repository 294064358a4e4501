// SPDX-License-Identifier: Apache-2.0
// For tests that speak gRPC themselves. Any thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "ferry/admin/v1/admin.grpc.pb.h"
#include "tests/support/admin.h"

namespace ferry::testing {

// A channel to a Unix socket that reconnects quickly, because daemons come and go in tests.
std::shared_ptr<grpc::Channel> UnixChannel(const std::string& socket);
void SetDeadline(grpc::ClientContext& context, int timeout_ms = 30'000);

struct Admin::Stubs {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<admin::v1::AdminService::Stub> admin;
};

}  // namespace ferry::testing
