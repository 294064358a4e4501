// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/grpc_server.h"

#include <grpcpp/server_posix.h>

#include "base/status.h"

namespace ferry {

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Create(
    const std::vector<grpc::Service*>& services, GrpcServerOptions options) {
  grpc::ServerBuilder builder;
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 256);
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

}  // namespace ferry
