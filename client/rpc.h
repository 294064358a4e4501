// SPDX-License-Identifier: Apache-2.0
// gRPC on client.sock: one socket, which the library opens and hands to gRPC as a descriptor. So
// there is no resolver, no proxy and no reconnect: the session sees to that. A call blocks its
// caller's thread, which polls for its own answer: no other thread wakes on the way. Any thread;
// owned by the connection. Invariant: after Cancel() every call ends soon and no new call starts.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "client/codec.h"
#include "client/fork.h"
#include "client/status.h"

namespace ferry::client {

enum class Method { kSend, kReceive, kCancel, kGet, kWatch, kCompile, kRun, kListDevices, kJoin };

grpc::ByteBuffer ToBuffer(std::string bytes);
std::string FromBuffer(const grpc::ByteBuffer& buffer);

class Rpc {
 public:
  // The context of one call; Cancel() cancels it. `deadline_ns`: as DeadlineAfter() gives it.
  class Call {
   public:
    Call(Rpc* rpc, uint64_t deadline_ns);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    grpc::ClientContext* context() { return &context_; }

   private:
    Rpc* const rpc_;
    grpc::ClientContext context_;
  };

  // `broken` is called when a call finds the connection closed: on the caller's thread, and perhaps
  // more than once.
  Rpc(ForkFds* fds, std::function<void(std::string)> broken)
      : fds_(fds), broken_(std::move(broken)) {}
  ~Rpc();  // after the last call

  StatusPtr Open(const std::string& dir, std::string token, uint64_t deadline_ns);
  void Cancel();

  StatusPtr Unary(Method method, std::string request, uint64_t deadline_ns, std::string* response);
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> ServerStream(Call* call, Method method,
                                                                     std::string request);
  // The error for the application of a call that ended with `status`; null for OK.
  StatusPtr Explain(Method method, const grpc::Status& status);

 private:
  ForkFds* const fds_;
  const std::function<void(std::string)> broken_;
  std::string token_;
  std::shared_ptr<grpc::Channel> channel_;

  std::mutex mutex_;  // guards what follows
  std::set<grpc::ClientContext*> calls_;
  bool cancelled_ = false;
};

}  // namespace ferry::client
