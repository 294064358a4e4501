// SPDX-License-Identifier: Apache-2.0
#include "bench/echo.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>

#include "base/grpc_target.h"
#include "base/status.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/failure.h"

namespace ferry::bench {
namespace {

using Batch = ferry::v1::CrossHostSendRequest;

class SmallEcho : public ::grpc::health::v1::Health::CallbackService {
 public:
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const ::grpc::health::v1::HealthCheckRequest*,
                                  ::grpc::health::v1::HealthCheckResponse* response) override {
    response->set_status(::grpc::health::v1::HealthCheckResponse::SERVING);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class BatchReactor : public grpc::ServerGenericBidiReactor {
 public:
  BatchReactor() { StartRead(&request_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no request"));
    Batch batch;
    bool own = false;
    grpc::Status status = grpc::SerializationTraits<Batch>::Deserialize(&request_, &batch);
    if (status.ok()) status = grpc::SerializationTraits<Batch>::Serialize(batch, &response_, &own);
    if (!status.ok()) return Finish(status);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

class BatchEcho : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new BatchReactor;
  }
};

}  // namespace

ferry::v1::CrossHostSendRequest DescriptorBatch(uint64_t count, uint64_t bytes) {
  Batch batch;
  batch.set_domain("bench");
  for (uint64_t i = 0; i < count; ++i) {
    auto* range = batch.add_buffers()->add_ranges();
    range->set_arena_id(7);
    range->set_offset(i * bytes);
    range->set_length(bytes);
    batch.add_dst_global_device_ids(2);
    batch.add_transfer_keys(tools::NumberKey(i));
  }
  return batch;
}

int RunEchoServer(const std::string& socket) {
  SmallEcho small;
  BatchEcho batches;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(UnixTarget(socket), grpc::InsecureServerCredentials());
  builder.RegisterService(&small);
  builder.RegisterCallbackGenericService(&batches);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  server->Wait();
  return 0;
}

absl::StatusOr<EchoClient> EchoClient::Start(const std::string& self) {
  ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make());
  const std::string socket = directory.path() + "/echo.sock";
  tools::SpawnOptions options;
  options.arguments = {self, "echo-server", socket};
  ASSIGN_OR_RETURN(tools::ChildProcess server, tools::ChildProcess::Spawn(options));
  EchoClient client(std::move(directory), std::move(server));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  client.channel_ =
      grpc::CreateCustomChannel(UnixTarget(socket), grpc::InsecureChannelCredentials(), arguments);
  if (!client.channel_->WaitForConnected(std::chrono::system_clock::now() +
                                         std::chrono::seconds(10))) {
    return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
                 "the echo server does not start");
  }
  client.small_ = ::grpc::health::v1::Health::NewStub(client.channel_);
  client.generic_ = std::make_unique<grpc::GenericStub>(client.channel_);
  client.queue_ = std::make_unique<grpc::CompletionQueue>();
  return client;
}

absl::StatusOr<absl::Duration> EchoClient::SmallCall() {
  grpc::ClientContext context;
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service("8 bytes.");
  ::grpc::health::v1::HealthCheckResponse response;
  const int64_t start = tools::MonotonicNanoseconds();
  const grpc::Status status = small_->Check(&context, request, &response);
  const int64_t end = tools::MonotonicNanoseconds();
  RETURN_IF_ERROR(tools::FromGrpc(status));
  return absl::Nanoseconds(end - start);
}

absl::StatusOr<absl::Duration> EchoClient::Descriptors(const Batch& batch) {
  const int64_t start = tools::MonotonicNanoseconds();
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
  grpc::Status status;
  bool own = false;
  RETURN_IF_ERROR(
      tools::FromGrpc(grpc::SerializationTraits<Batch>::Serialize(batch, &request, &own)));
  auto call =
      generic_->PrepareUnaryCall(&context, "/ferry.bench.Echo/Batch", request, queue_.get());
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue_->Next(&tag, &ok);
  RETURN_IF_ERROR(tools::FromGrpc(status));
  Batch echoed;
  RETURN_IF_ERROR(
      tools::FromGrpc(grpc::SerializationTraits<Batch>::Deserialize(&response, &echoed)));
  const int64_t end = tools::MonotonicNanoseconds();
  if (echoed.buffers_size() != batch.buffers_size()) {
    return Error(absl::StatusCode::kDataLoss, Reason::kInternal, "the echo is not what was sent");
  }
  return absl::Nanoseconds(end - start);
}

absl::StatusOr<absl::Duration> EchoClient::Descriptors(uint64_t count, uint64_t bytes,
                                                       uint64_t batch) {
  absl::Duration all;
  for (uint64_t at = 0; at < count; at += batch) {
    ASSIGN_OR_RETURN(const absl::Duration one,
                     Descriptors(DescriptorBatch(std::min(batch, count - at), bytes)));
    all += one;
  }
  return all;
}

}  // namespace ferry::bench
