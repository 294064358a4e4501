// SPDX-License-Identifier: Apache-2.0
// The gRPC round trip that Ferry's calls are compared with: the same gRPC, with a server in a
// process of its own, over a Unix socket. The client is for one thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/nodes.h"
#include "ferry/v1/transfer.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

// What a client posts, on the wire, for `count` transfers of `bytes`.
ferry::v1::CrossHostSendRequest DescriptorBatch(uint64_t count, uint64_t bytes);

// Serves on the socket until it is killed.
int RunEchoServer(const std::string& socket);

class EchoClient {
 public:
  // Starts `self` so that it calls RunEchoServer with the socket's path.
  static absl::StatusOr<EchoClient> Start(const std::string& self);

  // A unary call with 8 bytes there and a number back, by generated code.
  absl::StatusOr<absl::Duration> SmallCall();
  // A unary call with the batch there and back, decoded and encoded at both ends.
  absl::StatusOr<absl::Duration> Descriptors(const ferry::v1::CrossHostSendRequest& batch);
  // The same for `count` transfers of `bytes` in batches of `batch`: one call for each batch, one
  // after the other.
  absl::StatusOr<absl::Duration> Descriptors(uint64_t count, uint64_t bytes, uint64_t batch);

 private:
  EchoClient(TemporaryDirectory directory, tools::ChildProcess server)
      : directory_(std::move(directory)), server_(std::move(server)) {}
  TemporaryDirectory directory_;
  tools::ChildProcess server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<::grpc::health::v1::Health::Stub> small_;
  std::unique_ptr<grpc::GenericStub> generic_;
  std::unique_ptr<grpc::CompletionQueue> queue_;
};

}  // namespace ferry::bench
