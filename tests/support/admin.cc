// SPDX-License-Identifier: Apache-2.0
#include "tests/support/admin.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>

#include "base/grpc_target.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/grpc_channel.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {
namespace {

template <typename Response, typename Request, typename Method>
Response Ask(Method method, const Request& request) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  SetDeadline(context);
  Response response;
  const grpc::Status status = method(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

}  // namespace

std::shared_ptr<grpc::Channel> UnixChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
  return grpc::CreateCustomChannel(UnixTarget(socket), grpc::InsecureChannelCredentials(),
                                   arguments);
}

void SetDeadline(grpc::ClientContext& context, int timeout_ms) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
}

Admin::Admin(const std::string& admin_socket) : stubs_(std::make_unique<Stubs>()) {
  stubs_->channel = UnixChannel(admin_socket);
  stubs_->admin = admin::v1::AdminService::NewStub(stubs_->channel);
}

Admin::~Admin() = default;

admin::v1::GetStatusResponse Admin::Status() {
  return Ask<admin::v1::GetStatusResponse>(
      [this](auto... all) { return stubs_->admin->GetStatus(all...); },
      admin::v1::GetStatusRequest());
}
admin::v1::ListDevicesResponse Admin::Devices() {
  return Ask<admin::v1::ListDevicesResponse>(
      [this](auto... all) { return stubs_->admin->ListDevices(all...); },
      admin::v1::ListDevicesRequest());
}
admin::v1::ListSessionsResponse Admin::Sessions() {
  return Ask<admin::v1::ListSessionsResponse>(
      [this](auto... all) { return stubs_->admin->ListSessions(all...); },
      admin::v1::ListSessionsRequest());
}
admin::v1::ListTransfersResponse Admin::Transfers(uint32_t limit) {
  admin::v1::ListTransfersRequest request;
  request.set_limit(limit);
  return Ask<admin::v1::ListTransfersResponse>(
      [this](auto... all) { return stubs_->admin->ListTransfers(all...); }, request);
}
admin::v1::ExplainRouteResponse Admin::Explain(uint64_t source, uint64_t destination) {
  admin::v1::ExplainRouteRequest request;
  request.set_src_global_device_id(source);
  request.set_dst_global_device_id(destination);
  return Ask<admin::v1::ExplainRouteResponse>(
      [this](auto... all) { return stubs_->admin->ExplainRoute(all...); }, request);
}

admin::v1::ListCommsResponse Admin::Comms() {
  return Ask<admin::v1::ListCommsResponse>(
      [this](auto... all) { return stubs_->admin->ListComms(all...); },
      admin::v1::ListCommsRequest());
}

admin::v1::ListMembersResponse Admin::Members() {
  return Ask<admin::v1::ListMembersResponse>(
      [this](auto... all) { return stubs_->admin->ListMembers(all...); },
      admin::v1::ListMembersRequest());
}

size_t Admin::CountComms(const std::string& state) {
  size_t count = 0;
  const admin::v1::ListCommsResponse all = Comms();
  for (const admin::v1::Comm& comm : all.comms()) count += comm.state() == state ? 1 : 0;
  return count;
}

void Admin::WarmComm(uint64_t device, uint64_t other) {
  admin::v1::WarmCommRequest request;
  request.set_device_id(device);
  request.set_other_device_id(other);
  Ask<admin::v1::WarmCommResponse>([this](auto... all) { return stubs_->admin->WarmComm(all...); },
                                   request);
}

uint32_t Admin::EvictComm(uint64_t device, uint64_t other) {
  admin::v1::EvictCommRequest request;
  request.set_device_id(device);
  request.set_other_device_id(other);
  return Ask<admin::v1::EvictCommResponse>(
             [this](auto... all) { return stubs_->admin->EvictComm(all...); }, request)
      .attempt();
}

uint32_t Admin::AbortComm(uint64_t device, uint64_t other) {
  admin::v1::AbortCommRequest request;
  request.set_device_id(device);
  request.set_other_device_id(other);
  return Ask<admin::v1::AbortCommResponse>(
             [this](auto... all) { return stubs_->admin->AbortComm(all...); }, request)
      .attempt();
}

std::string Admin::Dump() {
  grpc::ClientContext context;
  SetDeadline(context);
  auto reader = stubs_->admin->Dump(&context, admin::v1::DumpRequest());
  std::string text;
  for (admin::v1::DumpResponse response; reader->Read(&response);) text += response.chunk();
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return text;
}

std::string Admin::PeerState(const std::string& node) {
  const admin::v1::GetStatusResponse status = Status();
  for (const auto& peer : status.peers()) {
    if (peer.node() == node) return peer.state();
  }
  return "";
}

size_t Admin::Count(const std::string& state) {
  size_t count = 0;
  const admin::v1::ListTransfersResponse all = Transfers(100'000);
  for (const auto& row : all.transfers()) {
    if (row.state() == state) ++count;
  }
  return count;
}

uint64_t Admin::ArenaBytes() {
  uint64_t bytes = 0;
  const admin::v1::ListDevicesResponse all = Devices();
  for (const auto& device : all.devices()) bytes += device.arena_bytes();
  return bytes;
}

std::string Admin::Health(const std::string& service, int timeout_ms) {
  auto stub = ::grpc::health::v1::Health::NewStub(stubs_->channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  SetDeadline(context, timeout_ms);
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  ::grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, request, &response);
  if (!status.ok()) return status.error_message();
  return ::grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
}

std::string HttpGet(const std::string& socket, const std::string& path) {
  RawSocket connection(socket, SOCK_STREAM);
  if (!connection.connected()) return "";
  if (!connection.Send("GET " + path + " HTTP/1.1\r\nHost: ferry\r\n\r\n")) return "";
  std::string answer;
  while (std::optional<RawSocket::Packet> piece = connection.Receive()) {
    if (piece->bytes.empty()) break;
    answer += piece->bytes;
  }
  const size_t body = answer.find("\r\n\r\n");
  if (answer.rfind("HTTP/1.1 200", 0) != 0 || body == std::string::npos) return "";
  return answer.substr(body + 4);
}

}  // namespace ferry::testing
