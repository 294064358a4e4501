// SPDX-License-Identifier: Apache-2.0
// What the client reads, against protoc, field by field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/codec.h"
#include "ferry/v1/session.pb.h"
#include "ferry/v1/transfer.pb.h"
#include "google/rpc/error_details.pb.h"

namespace ferry::client {
namespace {

google::rpc::Status FullStatus() {
  google::rpc::Status status;
  status.set_code(3);
  status.set_message("two are bad");
  google::rpc::ErrorInfo info;
  info.set_reason("RANGE_INVALID");
  info.set_domain("ferry.example.org");
  (*info.mutable_metadata())["arena"] = "5";
  status.add_details()->PackFrom(info);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1);
  retry.mutable_retry_delay()->set_nanos(5);
  status.add_details()->PackFrom(retry);
  google::rpc::BadRequest bad;
  for (int i = 0; i < 2; ++i) {
    auto* violation = bad.add_field_violations();
    violation->set_field("buffers[" + std::to_string(i) + "]");
    violation->set_description("why " + std::to_string(i));
  }
  status.add_details()->PackFrom(bad);
  return status;
}

void ExpectFull(const StatusPtr& status) {
  ASSERT_NE(status, nullptr);
  EXPECT_EQ(status->code, 3);
  EXPECT_EQ(status->message, "two are bad");
  EXPECT_EQ(status->reason, "RANGE_INVALID");
  EXPECT_EQ(status->retry_after_ns, 1'000'000'005u);
  EXPECT_THAT(status->violations, testing::ElementsAre(testing::Pair("buffers[0]", "why 0"),
                                                       testing::Pair("buffers[1]", "why 1")));
}

TEST(CodecTest, Statuses) {
  ExpectFull(DecodeStatus(FullStatus().SerializeAsString()));
  for (const auto& [seconds, nanos] : {std::pair(-1, 0), {0, -1}, {1'000'000, 0}, {0, 1 << 30}}) {
    google::rpc::Status odd = FullStatus();
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(seconds);
    retry.mutable_retry_delay()->set_nanos(nanos);
    odd.mutable_details(1)->PackFrom(retry);
    EXPECT_EQ(DecodeStatus(odd.SerializeAsString())->retry_after_ns, 0u) << seconds << " " << nanos;
  }
  EXPECT_EQ(DecodeStatus(""), nullptr);
  EXPECT_EQ(DecodeStatus("\x12\xff"), nullptr);
}

TEST(CodecTest, WelcomeIsRead) {
  v1::AttachResponse message;
  message.set_sequence(7);
  auto* welcome = message.mutable_welcome();
  welcome->set_protocol(1);
  welcome->set_session_id(1ull << 40);
  welcome->set_token(std::string("\0token", 6));
  welcome->set_incarnation(99);
  welcome->set_node("node-a");
  welcome->set_daemon_version("0.1.0");
  for (int i = 0; i < 2; ++i) {
    auto* device = welcome->add_devices();
    device->set_global_device_id(100 + i);
    device->set_kind(i == 0 ? v1::Device::KIND_HOST : v1::Device::KIND_GPU);
    device->set_name("dev" + std::to_string(i));
    if (i == 1) device->set_uuid("0123456789abcdef");
  }
  welcome->mutable_limits()->set_bytes(1);
  welcome->mutable_limits()->set_arenas(2);
  welcome->mutable_limits()->set_transfers_in_flight(3);
  welcome->mutable_limits()->set_batch_transfers(4);
  AttachResponse response;
  ASSERT_TRUE(DecodeAttachResponse(message.SerializeAsString(), &response));
  EXPECT_EQ(response.sequence, 7u);
  EXPECT_EQ(response.error, nullptr);
  ASSERT_EQ(response.kind, AttachResponse::Kind::kWelcome);
  EXPECT_EQ(response.welcome.protocol, 1u);
  EXPECT_EQ(response.welcome.session_id, 1ull << 40);
  EXPECT_EQ(response.welcome.token, std::string("\0token", 6));
  EXPECT_EQ(response.welcome.incarnation, 99u);
  EXPECT_EQ(response.welcome.node, "node-a");
  ASSERT_EQ(response.welcome.devices.size(), 2u);
  EXPECT_EQ(response.welcome.devices[1].id, 101u);
  EXPECT_EQ(response.welcome.devices[0].kind, 1);
  EXPECT_EQ(response.welcome.devices[1].kind, 2);
  EXPECT_EQ(response.welcome.devices[1].name, "dev1");
  EXPECT_EQ(response.welcome.devices[0].uuid, "");
  EXPECT_EQ(response.welcome.devices[1].uuid, "0123456789abcdef");
  EXPECT_EQ(response.welcome.limits.bytes, 1u);
  EXPECT_EQ(response.welcome.limits.arenas, 2u);
  EXPECT_EQ(response.welcome.limits.transfers_in_flight, 3u);
  EXPECT_EQ(response.welcome.limits.batch_transfers, 4u);
}

TEST(CodecTest, OtherAttachResponsesAreRead) {
  using Kind = AttachResponse::Kind;
  const auto decode = [](const v1::AttachResponse& message) {
    AttachResponse response;
    EXPECT_TRUE(DecodeAttachResponse(message.SerializeAsString(), &response));
    return response;
  };
  v1::AttachResponse message;
  message.set_sequence(8);
  message.mutable_arena_registered()->set_arena_id(1ull << 60);
  message.mutable_arena_registered()->set_mapped_bytes(1ull << 50);
  EXPECT_EQ(decode(message).kind, Kind::kArenaRegistered);
  EXPECT_EQ(decode(message).arena_id, 1ull << 60);
  EXPECT_EQ(decode(message).mapped_bytes, 1ull << 50);
  message.mutable_arena_released();
  EXPECT_EQ(decode(message).kind, Kind::kArenaReleased);
  message.mutable_timeline_reset();
  EXPECT_EQ(decode(message).kind, Kind::kTimelineReset);
  message.mutable_send()->set_first_transfer_id(300);
  message.mutable_send()->set_first_over_value(1ull << 40);
  EXPECT_EQ(decode(message).kind, Kind::kPosted);
  EXPECT_EQ(decode(message).first_transfer_id, 300u);
  EXPECT_EQ(decode(message).first_over_value, 1ull << 40);
  message.mutable_receive()->set_first_over_value(2);
  EXPECT_EQ(decode(message).kind, Kind::kPosted);
  EXPECT_EQ(decode(message).first_transfer_id, 0u);
  EXPECT_EQ(decode(message).first_over_value, 2u);
  message.mutable_receive()->set_prepared_batch(255);
  EXPECT_EQ(decode(message).prepared_batch, 255u);
  message.mutable_prepared_released();
  EXPECT_EQ(decode(message).kind, Kind::kPreparedReleased);
  message.mutable_pong();
  EXPECT_EQ(decode(message).kind, Kind::kPong);
  message.set_sequence(0);
  message.mutable_notice()->set_draining(true);
  EXPECT_EQ(decode(message).kind, Kind::kNotice);
  EXPECT_TRUE(decode(message).draining);
  message.clear_response();
  *message.mutable_error() = FullStatus();
  ExpectFull(decode(message).error);
  EXPECT_EQ(decode(message).kind, Kind::kNone);
}

TEST(CodecTest, PostAnswersAreRead) {
  v1::CrossHostSendResponse send;
  send.set_first_transfer_id(300);
  send.set_first_over_value(1ull << 40);
  PostAnswer answer;
  ASSERT_TRUE(DecodePostAnswer(send.SerializeAsString(), &answer));
  EXPECT_EQ(answer.first_transfer_id, 300u);
  EXPECT_EQ(answer.first_over_value, 1ull << 40);
  v1::CrossHostReceiveResponse receive;
  receive.set_first_transfer_id(301);
  receive.set_first_over_value(2);
  receive.set_prepared_batch(3);
  ASSERT_TRUE(DecodePostAnswer(receive.SerializeAsString(), &answer));
  EXPECT_EQ(answer.first_transfer_id, 301u);
  EXPECT_EQ(answer.first_over_value, 2u);
  EXPECT_EQ(answer.prepared_batch, 3u);
}

TEST(CodecTest, TransfersAreRead) {
  v1::GetTransfersResponse get;
  v1::WatchTransfersResponse watch;
  watch.set_first_event(1ull << 33);
  for (int i = 0; i < 2; ++i) {
    v1::Transfer transfer;
    transfer.set_transfer_id(500 + i);
    transfer.set_state(v1::TRANSFER_STATE_OVER);
    transfer.set_route(v1::ROUTE_LOCAL);
    if (i == 1) *transfer.mutable_status() = FullStatus();
    *get.add_transfers() = transfer;
    *watch.add_ended() = transfer;
  }
  std::vector<TransferInfo> transfers;
  ASSERT_TRUE(DecodeGetTransfers(get.SerializeAsString(), &transfers));
  WatchEvents events;
  ASSERT_TRUE(DecodeWatch(watch.SerializeAsString(), &events));
  EXPECT_EQ(events.first_event, 1ull << 33);
  for (const auto* list : {&transfers, &events.ended}) {
    ASSERT_EQ(list->size(), 2u);
    EXPECT_EQ((*list)[0].id, 500u);
    EXPECT_EQ((*list)[0].state, v1::TRANSFER_STATE_OVER);
    EXPECT_EQ((*list)[0].route, v1::ROUTE_LOCAL);
    EXPECT_EQ((*list)[0].status, nullptr);
    EXPECT_EQ((*list)[1].id, 501u);
    ExpectFull((*list)[1].status);
  }
}

TEST(CodecTest, ClusterDevicesAreRead) {
  v1::ListClusterDevicesResponse response;
  auto* gpu = response.add_devices();
  gpu->mutable_device()->set_global_device_id(1ull << 40);
  gpu->mutable_device()->set_kind(v1::Device::KIND_GPU);
  gpu->mutable_device()->set_name("gpu3");
  gpu->mutable_device()->set_uuid(std::string(16, 'u'));
  gpu->set_node("node-b");
  gpu->set_local(true);
  response.add_devices()->mutable_device()->set_global_device_id(7);
  std::vector<ClusterDeviceInfo> devices;
  ASSERT_TRUE(DecodeClusterDevices(response.SerializeAsString(), &devices));
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].device.id, 1ull << 40);
  EXPECT_EQ(devices[0].device.kind, kGpuDevice);
  EXPECT_EQ(devices[0].device.name, "gpu3");
  EXPECT_EQ(devices[0].device.uuid, std::string(16, 'u'));
  EXPECT_EQ(devices[0].node, "node-b");
  EXPECT_TRUE(devices[0].local);
  EXPECT_EQ(devices[1].device.id, 7u);
  EXPECT_EQ(devices[1].device.kind, 0);
  EXPECT_FALSE(devices[1].local);
  EXPECT_FALSE(DecodeClusterDevices("\x0a\xff", &devices));
}

TEST(CodecTest, GarbageIsRefusedAndUnknownFieldsAreSkipped) {
  AttachResponse attach;
  EXPECT_FALSE(DecodeAttachResponse("\xff\xff\xff", &attach));
  EXPECT_FALSE(DecodeAttachResponse("\x1a\x7fshort", &attach));
  PostAnswer answer;
  EXPECT_FALSE(DecodePostAnswer("\x08", &answer));
  v1::AttachResponse message;
  message.set_sequence(4);
  std::string bytes = message.SerializeAsString() + "\xfa\x01\x03new";  // field 31
  ASSERT_TRUE(DecodeAttachResponse(bytes, &attach));
  EXPECT_EQ(attach.sequence, 4u);
}

// Found by fuzzing: the text was taken for the number of its bytes, and what it says for fields.
TEST(CodecTest, AFieldOfAnotherTypeIsSkipped) {
  AttachResponse attach;
  ASSERT_TRUE(DecodeAttachResponse(std::string("\x0a\x02\x08\x05\x10\x07", 6), &attach));
  EXPECT_EQ(attach.sequence, 0u);
  EXPECT_EQ(attach.error, nullptr);
  EXPECT_EQ(DecodeStatus(std::string("\x12\x01m\x0a\x02\x08\x05", 7)), nullptr);
  std::vector<TransferInfo> transfers;
  EXPECT_TRUE(DecodeGetTransfers(std::string("\x08\x05", 2), &transfers));
  EXPECT_TRUE(transfers.empty());
}

}  // namespace
}  // namespace ferry::client
