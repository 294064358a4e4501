// SPDX-License-Identifier: Apache-2.0
// gRPC servers without listeners: they serve the connections that our accept loop hands them.
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
  // Bound on the bytes that the server's connections have sent and that are not handled yet,
  // incomplete messages too. Beyond it gRPC ends some of the server's streams.
  uint64_t bytes = uint64_t{64} << 20;
  // Sends pings, to find half-open TCP connections. Not for Unix sockets.
  bool keepalive = false;
};

class GrpcServer {
 public:
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Create(
      const std::vector<grpc::Service*>& services, GrpcServerOptions options);
  ~GrpcServer();
  // Any thread. Takes ownership of the descriptor.
  void Serve(int fd);
  // Cancels the calls that still run, and waits for them.
  void Shutdown();

 private:
  explicit GrpcServer(std::unique_ptr<grpc::Server> server) : server_(std::move(server)) {}
  std::unique_ptr<grpc::Server> server_;
};

// One GrpcServer for each user, so that what a user leaves unfinished counts against his own bytes,
// and ends his own streams. Users beyond the first kMost share one. Made and shut down on one
// thread; Serve is for the door's thread.
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
  // Null: the user shares `others_`
  absl::flat_hash_map<uid_t, std::unique_ptr<GrpcServer>> of_users_;
};

}  // namespace ferry
