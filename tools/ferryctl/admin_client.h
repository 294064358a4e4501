// SPDX-License-Identifier: Apache-2.0
// Calls on the daemon's admin.sock. One thread at a time per object.
#pragma once

#include <google/protobuf/message.h>
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

namespace ferry::tools {

inline constexpr absl::Duration kAdminTimeout = absl::Seconds(10);

// A channel to the socket; nothing is connected yet.
std::shared_ptr<grpc::Channel> AdminChannel(const std::string& socket);

// UNAVAILABLE if there is no socket, PERMISSION_DENIED if it is not for us: gRPC tells neither
// apart.
absl::Status CheckSocket(const std::string& socket);

class AdminClient {
 public:
  static absl::StatusOr<AdminClient> Open(const Globals& globals);

  // call(stub, &context) makes one call: `Call([&](auto& s, auto* c) { return s.Dump(c, ...); })`.
  template <typename Function>
  absl::Status Call(Function call, absl::Duration timeout) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    const absl::Status status = FromGrpc(call(*stub_, &context));
    if (!absl::IsDeadlineExceeded(status)) return status;
    return Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
                 absl::StrCat("asking ", socket_, ": no answer in ", absl::FormatDuration(timeout),
                              " (stopped, or busy?); --timeout says how long to wait"));
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

// The message as one JSON document, fields named as in the .proto; protobuf's mapping, so that
// 64-bit integers are strings. Incarnations and fingerprints are in hexadecimal, as everywhere
// people meet them.
std::string MessageJson(const google::protobuf::Message& message);
// Reads what MessageJson wrote; fields of a later version are left out. `what` begins the error.
absl::Status FromMessageJson(const std::string& text, google::protobuf::Message* message,
                             const std::string& what);

}  // namespace ferry::tools
