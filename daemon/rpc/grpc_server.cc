// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/grpc_server.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>

#include "base/status.h"

namespace ferry {

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Create(
    const std::vector<grpc::Service*>& services, GrpcServerOptions options) {
  grpc::ServerBuilder builder;
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.streams_per_connection);
  grpc::ResourceQuota quota;
  quota.Resize(options.bytes);
  builder.SetResourceQuota(quota);
  if (options.keepalive) {
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, "start a gRPC server");
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server)));
}

GrpcServer::~GrpcServer() { Shutdown(); }

void GrpcServer::Serve(int fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd); }

void GrpcServer::Shutdown() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

absl::StatusOr<std::unique_ptr<UserServers>> UserServers::Create(
    std::vector<grpc::Service*> services, GrpcServerOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<GrpcServer> others, GrpcServer::Create(services, options));
  return std::unique_ptr<UserServers>(
      new UserServers(std::move(services), options, std::move(others)));
}

void UserServers::Serve(uid_t user, int fd) {
  if (of_users_.size() < kMost && !of_users_.contains(user)) {
    absl::StatusOr<std::unique_ptr<GrpcServer>> own = GrpcServer::Create(services_, options_);
    of_users_[user] = own.ok() ? *std::move(own) : nullptr;
  }
  const auto found = of_users_.find(user);
  (found != of_users_.end() && found->second != nullptr ? *found->second : *others_).Serve(fd);
}

void UserServers::Shutdown() {
  for (const auto& [user, server] : of_users_) {
    if (server != nullptr) server->Shutdown();
  }
  others_->Shutdown();
}

}  // namespace ferry
