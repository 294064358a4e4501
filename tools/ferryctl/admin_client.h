// SPDX-License-Identifier: Apache-2.0
// Calls on the daemon's admin.sock. One thread at a time per object.
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

// A channel to the socket; nothing is connected yet.
std::shared_ptr<grpc::Channel> AdminChannel(const std::string& socket);

// UNAVAILABLE if there is no socket, PERMISSION_DENIED if it is not for us: gRPC tells neither
// apart.
absl::Status CheckSocket(const std::string& socket);
// What both are told that find no socket, and that find one which a daemon has left.
absl::Status NobodyListens(const std::string& socket);
// Of a call that was not answered in time.
absl::Status NoAnswer(const std::string& socket, absl::Duration timeout);
// As FromGrpc, of a call on the socket.
absl::Status FromCall(const grpc::Status& status, const std::string& socket);

class AdminClient {
 public:
  static absl::StatusOr<AdminClient> Open(const Globals& globals);

  // call(stub, &context) makes one call: `Call([&](auto& s, auto* c) { return s.Dump(c, ...); })`.
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

// What was done, in words; or as JSON.
void PrintAnswer(const Globals& globals, const google::protobuf::Message& response,
                 const std::string& text);

}  // namespace ferry::tools
