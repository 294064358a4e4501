// SPDX-License-Identifier: Apache-2.0
// Calls on the daemon's admin.sock. An AdminClient is for one thread at a time.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <sys/un.h>

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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

// The address of the socket, whose path has at most 107 bytes (CheckRuntimeDir).
sockaddr_un SocketAddress(const std::string& socket);
// UNAVAILABLE if there is no socket, PERMISSION_DENIED if this user may not connect: gRPC does not
// tell the two apart.
absl::Status CheckSocket(const std::string& socket);
// The error for a socket that does not exist, and for one that a daemon has left behind.
absl::Status NobodyListens(const std::string& socket);
// The error for a call that was not answered in time.
absl::Status NoAnswer(const std::string& socket, absl::Duration timeout);
// As FromGrpc, for a call on the socket.
absl::Status FromCall(const grpc::Status& status, const std::string& socket);

// Makes a call on the socket by its channel, and again while it was not connected although somebody
// listens: a daemon that ends closes a connection that it has just accepted, and systemd keeps the
// socket for the next one. `call` gets a context with the deadline. UNAVAILABLE as of
// NobodyListens, DEADLINE_EXCEEDED as of NoAnswer, else what the daemon said.
absl::Status CallSocket(grpc::Channel& channel, const std::string& socket, absl::Duration timeout,
                        absl::FunctionRef<grpc::Status(grpc::ClientContext*)> call);

class AdminClient {
 public:
  static absl::StatusOr<AdminClient> Open(const Globals& globals);

  // Makes one call: `Call([&](auto& s, auto* c) { return s.Dump(c, ...); })`.
  template <typename Function>
  absl::Status Call(Function call, absl::Duration timeout) {
    return CallSocket(*channel_, socket_, timeout,
                      [&](grpc::ClientContext* context) { return call(*stub_, context); });
  }
  template <typename Function>
  absl::Status Call(Function call) {
    return Call(std::move(call), timeout_);
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ferry::admin::v1::AdminService::Stub> stub_;
  std::string socket_;
  absl::Duration timeout_;
};

// Prints what was done: `text`, or with --json the response.
void PrintAnswer(const Globals& globals, const google::protobuf::Message& response,
                 const std::string& text);

}  // namespace ferry::tools
