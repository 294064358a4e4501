// SPDX-License-Identifier: Apache-2.0
// Calls on the daemon's admin.sock. An AdminClient is for one thread at a time.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "ferry/admin/v1/admin.grpc.pb.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/message_json.h"

namespace ferry::tools {

inline constexpr absl::Duration kAdminTimeout = absl::Seconds(10);

// A channel to the socket. Nothing is connected before the first call.
std::shared_ptr<grpc::Channel> AdminChannel(const std::string& socket);

// UNAVAILABLE if there is no socket, PERMISSION_DENIED if this user may not connect: gRPC does not
// tell the two apart.
absl::Status CheckSocket(const std::string& socket);
// The error for a socket that does not exist, and for one that a daemon has left behind.
absl::Status NobodyListens(const std::string& socket);
// The error for a call that was not answered in time.
absl::Status NoAnswer(const std::string& socket, absl::Duration timeout);
// As FromGrpc, for a call on the socket.
absl::Status FromCall(const grpc::Status& status, const std::string& socket);

class AdminClient {
 public:
  static absl::StatusOr<AdminClient> Open(const Globals& globals);

  // Makes one call: `Call([&](auto& s, auto* c) { return s.Dump(c, ...); })`.
  template <typename Function>
  absl::Status Call(Function call, absl::Duration timeout) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    const absl::Status status = FromCall(call(*stub_, &context), socket_);
    return absl::IsDeadlineExceeded(status) ? NoAnswer(socket_, timeout) : status;
  }
  template <typename Function>
  absl::Status Call(Function call) {
    return Call(std::move(call), timeout_);
  }

 private:
  std::unique_ptr<ferry::admin::v1::AdminService::Stub> stub_;
  std::string socket_;
  absl::Duration timeout_;
};

// Prints what was done: `text`, or with --json the response.
void PrintAnswer(const Globals& globals, const google::protobuf::Message& response,
                 const std::string& text);

}  // namespace ferry::tools
