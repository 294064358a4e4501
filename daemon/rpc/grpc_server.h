// SPDX-License-Identifier: Apache-2.0
// A gRPC server without listeners: it serves the connections that our accept loop hands it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "daemon/rpc/connection_table.h"

namespace ferry {

struct GrpcServerOptions {
  int max_receive_bytes = 4 << 20;
  // Pings to find half-open TCP; not for Unix sockets.
  bool keepalive = false;
};

class GrpcServer {
 public:
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Create(
      const std::vector<grpc::Service*>& services, GrpcServerOptions options);
  ~GrpcServer();
  // Any thread. Takes the descriptor.
  void Serve(int fd);
  // Cancels what is still running and waits for it.
  void Shutdown();

 private:
  explicit GrpcServer(std::unique_ptr<grpc::Server> server) : server_(std::move(server)) {}
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ferry
