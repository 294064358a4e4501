// SPDX-License-Identifier: Apache-2.0
// A gRPC server without listeners: it serves the connections that our accept loop hands it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "daemon/rpc/connection_table.h"

namespace ferry {

struct GrpcServerOptions {
  int max_receive_bytes = 4 << 20;
  int streams_per_connection = 256;
  // Of all that its connections have sent and that is not done with, unfinished messages among it;
  // beyond that gRPC ends some of its streams.
  uint64_t bytes = uint64_t{64} << 20;
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

// As many servers as there are users: what one leaves unfinished counts against its own bytes, and
// ends its own streams. Users beyond the first kMost share one. Made and shut down on one thread;
// Serve is for the door's.
class UserServers {
 public:
  static constexpr size_t kMost = 64;
  static absl::StatusOr<std::unique_ptr<UserServers>> Create(std::vector<grpc::Service*> services,
                                                             GrpcServerOptions options);
  void Serve(uid_t user, int fd);
  void Shutdown();

 private:
  UserServers(std::vector<grpc::Service*> services, GrpcServerOptions options,
              std::unique_ptr<GrpcServer> others)
      : services_(std::move(services)), options_(options), others_(std::move(others)) {}
  const std::vector<grpc::Service*> services_;
  const GrpcServerOptions options_;
  const std::unique_ptr<GrpcServer> others_;
  absl::flat_hash_map<uid_t, std::unique_ptr<GrpcServer>> of_users_;  // null: `others_`
};

}  // namespace ferry
