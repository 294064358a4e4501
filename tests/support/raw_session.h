// SPDX-License-Identifier: Apache-2.0
// A session made by hand on attach.sock and client.sock, to send what libferry never would. One
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ferry/v1/session.grpc.pb.h"
#include "ferry/v1/transfer.grpc.pb.h"
#include "tests/support/grpc_channel.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {

class RawSession {
 public:
  explicit RawSession(const std::string& client_dir);
  // Sends `request`, whose sequence number it sets, and returns the daemon's answer. If the
  // connection closes without one, returns an answer with sequence 0 and no error.
  v1::AttachResponse Ask(v1::AttachRequest request, const std::vector<int>& fds = {});
  v1::AttachResponse Hello(const std::string& token = "", const std::string& name = "raw");
  v1::AttachResponse Register(uint64_t device, uint64_t bytes, const std::vector<int>& fds);
  v1::AttachResponse Release(uint64_t arena);
  v1::AttachResponse Send(const v1::CrossHostSendRequest& batch);
  // Registers a good arena of `bytes`. Returns its id.
  uint64_t MakeArena(uint64_t device, uint64_t bytes);

  RawSocket& socket() { return socket_; }
  const std::string& token() const { return token_; }
  std::vector<UniqueFd>& fds() { return fds_; }

  // Call makes a call on client.sock with the session's token, or another one.
  v1::TransferService::Stub& transfers() { return *transfers_; }
  v1::SessionService::Stub& sessions() { return *sessions_; }
  template <typename Function>
  absl::Status Call(Function call, const std::string* token = nullptr) {
    grpc::ClientContext context;
    context.AddMetadata("ferry-session-bin", token != nullptr ? *token : token_);
    return Finish(context, [&] { return call(&context); });
  }

 private:
  absl::Status Finish(grpc::ClientContext& context, const std::function<grpc::Status()>& call);

  RawSocket socket_;
  uint64_t sequence_ = 0;
  std::string token_;
  std::vector<UniqueFd> fds_;  // descriptors that came beside the last answer
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TransferService::Stub> transfers_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
};

// "CODE/REASON" of a google.rpc.Status; "OK" if it is OK.
std::string NameOf(const google::rpc::Status& status);

}  // namespace ferry::testing
