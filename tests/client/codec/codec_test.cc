// SPDX-License-Identifier: Apache-2.0
// The client's own coding against protoc's, field by field, both ways.
#include "client/codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "client/arena.h"
#include "ferry/v1/session.pb.h"
#include "ferry/v1/transfer.pb.h"
#include "google/rpc/error_details.pb.h"

namespace ferry::client {
namespace {

using google::protobuf::util::MessageDifferencer;

template <typename Message>
Message Parse(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  // Nothing we send is unknown to protoc, and nothing is longer than it need be.
  EXPECT_EQ(message.SerializeAsString().size(), bytes.size()) << message.DebugString();
  EXPECT_EQ(message.GetReflection()->GetUnknownFields(message).field_count(), 0);
  return message;
}

#define EXPECT_SAME(expected, actual)                       \
  EXPECT_TRUE(MessageDifferencer::Equals(expected, actual)) \
      << "expected " << (expected).DebugString() << "got " << (actual).DebugString()

TEST(CodecTest, Hello) {
  v1::AttachRequest expected;
  expected.set_sequence(1);
  expected.mutable_hello()->set_protocol_min(1);
  expected.mutable_hello()->set_protocol_max(1);
  expected.mutable_hello()->set_features(kFeatureSocketPosts | kFeaturePrepared);
  expected.mutable_hello()->set_name("trainer-7");
  expected.mutable_hello()->set_client_version(FERRY_VERSION);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeHello(1, "trainer-7")));
}

TEST(CodecTest, AttachRequests) {
  v1::AttachRequest expected;
  expected.set_sequence(300);
  expected.mutable_register_arena()->set_device_id(1ull << 40);
  expected.mutable_register_arena()->set_bytes(1ull << 50);
  expected.mutable_register_arena()->set_imported(true);
  EXPECT_SAME(expected,
              Parse<v1::AttachRequest>(EncodeRegisterArena(300, 1ull << 40, 1ull << 50, true)));
  expected.mutable_register_arena()->Clear();  // all zero, yet there
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeRegisterArena(300, 0, 0, false)));
  expected.mutable_release_arena()->set_arena_id(77);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeReleaseArena(300, 77)));
  expected.mutable_reset_timeline()->set_timeline(63);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeResetTimeline(300, 63)));
  expected.mutable_reset_timeline()->set_timeline(0);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeResetTimeline(300, 0)));
  expected.mutable_release_prepared()->set_prepared_batch(255);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeReleasePrepared(300, 255)));
  expected.mutable_release_prepared()->set_prepared_batch(0);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeReleasePrepared(300, 0)));
}

struct Batch {
  ferry_arena arenas[2];
  std::vector<ferry_range> ranges;
  ferry_strided_range strided{&arenas[1], 1ull << 40, 4096, 1ull << 20, 300};
  std::vector<uint64_t> indices{0, 300, 1ull << 63, 300};
  ferry_block_table blocks{&arenas[0], 0, 128, indices.data(), indices.size()};
  ferry_block_table no_blocks{&arenas[1], 7, 0, nullptr, 0};
  std::vector<int64_t> dims{3, -1, 1ll << 40};
  std::vector<ferry_transfer> transfers;
  ferry_post_options options{};

  Batch() {
    arenas[0].id = 1;
    arenas[1].id = 1ull << 63;
    ranges = {{&arenas[0], 0, 0}, {&arenas[1], 1ull << 33, 300}, {&arenas[0], 128, 127}};
    ferry_transfer full{};
    full.remote_device = 1ull << 35;
    full.key = "k\0y";
    full.key_bytes = 3;
    full.ranges = ranges.data();
    full.range_count = ranges.size();
    full.data_type = FERRY_F4E2M1FN;
    full.dims = dims.data();
    full.dim_count = dims.size();
    full.has_defined_at = 1;
    full.defined_timeline = 63;
    full.defined_value = UINT64_MAX;
    full.deadline_ns = 1500000001;
    ferry_transfer empty{};  // zero bytes under an empty key
    ferry_transfer scalar{};
    scalar.dims = dims.data();
    scalar.has_defined_at = 1;
    scalar.key = "s";
    scalar.key_bytes = 1;
    scalar.deadline_ns = 5000000000;
    ferry_transfer of_stride{};
    of_stride.strided = &strided;
    of_stride.data_type = FERRY_U8;
    ferry_transfer of_blocks{};
    of_blocks.blocks = &blocks;
    ferry_transfer of_none{};
    of_none.blocks = &no_blocks;
    transfers = {full, empty, scalar, of_stride, of_blocks, of_none};
    options.domain = "job";
    options.domain_bytes = 3;
    options.over_timeline = 5;
    options.deadline_ns = 999999999;
    options.priority = -100;
    options.route = FERRY_ROUTE_UCX;
    options.request_id = "\0id";
    options.request_id_bytes = 3;
  }

  PostBatch Post(Direction direction) const {
    return {direction, 9, transfers.data(), transfers.size(), &options, true};
  }

  template <typename Request>
  Request Expected() const {
    Request request;
    request.set_request_id(std::string("\0id", 3));
    request.set_domain("job");
    request.set_device_id(9);
    auto* full = request.add_buffers();
    for (const ferry_range& range : ranges) {
      auto* added = full->add_ranges();
      added->set_arena_id(range.arena->id);
      added->set_offset(range.offset);
      added->set_length(range.length);
    }
    full->set_data_type(v1::DATA_TYPE_F4E2M1FN);
    for (int64_t dim : dims) full->add_dims(dim);
    full->set_has_shape(true);
    full->mutable_defined_at()->set_timeline(63);
    full->mutable_defined_at()->set_value(UINT64_MAX);
    full->mutable_deadline()->set_seconds(1);
    full->mutable_deadline()->set_nanos(500000001);
    request.add_buffers();
    auto* scalar = request.add_buffers();
    scalar->set_has_shape(true);
    scalar->mutable_defined_at();
    scalar->mutable_deadline()->set_seconds(5);
    auto* of_stride = request.add_buffers();
    of_stride->mutable_strided()->set_arena_id(strided.arena->id);
    of_stride->mutable_strided()->set_offset(strided.offset);
    of_stride->mutable_strided()->set_block_bytes(strided.block_bytes);
    of_stride->mutable_strided()->set_stride_bytes(strided.stride_bytes);
    of_stride->mutable_strided()->set_count(strided.count);
    of_stride->set_data_type(v1::DATA_TYPE_U8);
    auto* of_blocks = request.add_buffers()->mutable_blocks();
    of_blocks->set_arena_id(blocks.arena->id);
    of_blocks->set_block_bytes(blocks.block_bytes);
    for (const uint64_t index : indices) of_blocks->add_indices(index);
    auto* of_none = request.add_buffers()->mutable_blocks();
    of_none->set_arena_id(no_blocks.arena->id);
    of_none->set_offset(no_blocks.offset);
    request.add_transfer_keys(std::string("k\0y", 3));
    request.add_transfer_keys("");
    request.add_transfer_keys("s");
    for (int i = 0; i < 3; ++i) request.add_transfer_keys("");
    auto* options = request.mutable_options();
    options->set_over_timeline(5);
    options->mutable_deadline()->set_nanos(999999999);
    options->set_priority(-100);
    options->set_route(v1::ROUTE_UCX);
    request.set_prepare(true);
    return request;
  }
};

v1::CrossHostSendRequest ExpectedSend(const Batch& batch) {
  auto request = batch.Expected<v1::CrossHostSendRequest>();
  for (uint64_t id : {1ull << 35, 0ull, 0ull, 0ull, 0ull, 0ull})
    request.add_dst_global_device_ids(id);
  return request;
}

v1::CrossHostReceiveRequest ExpectedReceive(const Batch& batch) {
  auto request = batch.Expected<v1::CrossHostReceiveRequest>();
  for (uint64_t id : {1ull << 35, 0ull, 0ull, 0ull, 0ull, 0ull})
    request.add_src_global_device_ids(id);
  return request;
}

TEST(CodecTest, PostsOverUnaryCalls) {
  const Batch batch;
  EXPECT_SAME(ExpectedSend(batch),
              Parse<v1::CrossHostSendRequest>(EncodePost(batch.Post(Direction::kSend))));
  EXPECT_SAME(ExpectedReceive(batch),
              Parse<v1::CrossHostReceiveRequest>(EncodePost(batch.Post(Direction::kReceive))));
}

TEST(CodecTest, PostsOverTheStream) {
  const Batch batch;
  v1::PostTransfersRequest expected;
  expected.set_sequence(1ull << 40);
  *expected.mutable_send() = ExpectedSend(batch);
  EXPECT_SAME(expected, Parse<v1::PostTransfersRequest>(
                            EncodeStreamPost(1ull << 40, batch.Post(Direction::kSend))));
  *expected.mutable_receive() = ExpectedReceive(batch);
  EXPECT_SAME(expected, Parse<v1::PostTransfersRequest>(
                            EncodeStreamPost(1ull << 40, batch.Post(Direction::kReceive))));
}

TEST(CodecTest, PostsOverTheSessionsSocket) {
  const Batch batch;
  v1::AttachRequest expected;
  expected.set_sequence(1ull << 40);
  *expected.mutable_send() = ExpectedSend(batch);
  EXPECT_SAME(expected,
              Parse<v1::AttachRequest>(EncodeSocketPost(1ull << 40, batch.Post(Direction::kSend))));
  *expected.mutable_receive() = ExpectedReceive(batch);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(
                            EncodeSocketPost(1ull << 40, batch.Post(Direction::kReceive))));
}

TEST(CodecTest, ABatchIsForTheSessionsSocketIfItFitsOnePacket) {
  ferry_post_options options{};
  const PostBatch batch{Direction::kSend, 0, nullptr, 0, &options};
  std::string domain(kMaxPacket, 'd');  // nothing else is so easily made long
  options.domain = domain.data();
  options.domain_bytes = kMaxPacket / 2;
  const size_t around = EncodeSocketPost(1, batch).size() - options.domain_bytes;
  options.domain_bytes = kMaxPacket - around;
  EXPECT_EQ(EncodeSocketPost(1, batch).size(), kMaxPacket);
  ++options.domain_bytes;
  EXPECT_EQ(EncodeSocketPost(1, batch), "");
}

TEST(CodecTest, AnEmptyBatchIsStillABatch) {
  ferry_post_options options{};
  const PostBatch batch{Direction::kReceive, 0, nullptr, 0, &options};
  EXPECT_EQ(EncodePost(batch), "");
  EXPECT_TRUE(Parse<v1::PostTransfersRequest>(EncodeStreamPost(1, batch)).has_receive());
}

TEST(CodecTest, DataTypesAndRoutesHaveTheWiresNumbers) {
  EXPECT_EQ(int{FERRY_PRED}, v1::DATA_TYPE_PRED);
  EXPECT_EQ(int{FERRY_U64}, v1::DATA_TYPE_U64);
  EXPECT_EQ(int{FERRY_BF16}, v1::DATA_TYPE_BF16);
  EXPECT_EQ(int{FERRY_C128}, v1::DATA_TYPE_C128);
  EXPECT_EQ(int{FERRY_F4E2M1FN}, v1::DATA_TYPE_F4E2M1FN);
  EXPECT_EQ(int{FERRY_F4E2M1FN}, v1::DataType_MAX);
  EXPECT_EQ(int{FERRY_ROUTE_NCCL}, v1::ROUTE_NCCL);
  EXPECT_EQ(int{FERRY_ROUTE_NCCL}, v1::Route_MAX);
}

TEST(CodecTest, LargeBatch) {
  ferry_arena arena;
  arena.id = 5;
  std::vector<ferry_range> ranges(4096);
  std::vector<ferry_transfer> transfers(4096);
  std::vector<std::string> keys(4096);
  for (size_t i = 0; i < ranges.size(); ++i) {
    ranges[i] = {&arena, i * 4096, 4096};
    keys[i] = "layer." + std::to_string(i);
    transfers[i].remote_device = i;
    transfers[i].key = keys[i].data();
    transfers[i].key_bytes = keys[i].size();
    transfers[i].ranges = &ranges[i];
    transfers[i].range_count = 1;
  }
  ferry_post_options options{};
  const auto parsed = Parse<v1::CrossHostSendRequest>(
      EncodePost({Direction::kSend, 1, transfers.data(), transfers.size(), &options}));
  ASSERT_EQ(parsed.buffers_size(), 4096);
  for (int i = 0; i < 4096; ++i) {
    ASSERT_EQ(parsed.buffers(i).ranges(0).offset(), static_cast<uint64_t>(i) * 4096);
    ASSERT_EQ(parsed.transfer_keys(i), keys[i]);
    ASSERT_EQ(parsed.dst_global_device_ids(i), static_cast<uint64_t>(i));
  }
}

TEST(CodecTest, CancelGetAndWatch) {
  v1::CancelTransfersRequest cancel;
  for (uint64_t id : {127, 128, 129}) cancel.add_transfer_ids(id);
  EXPECT_SAME(cancel, Parse<v1::CancelTransfersRequest>(EncodeCancel(127, 3, nullptr)));
  cancel.mutable_poison()->set_code(10);
  EXPECT_SAME(cancel, Parse<v1::CancelTransfersRequest>(EncodeCancel(127, 3, "")));
  cancel.mutable_poison()->set_message("out of data");
  EXPECT_SAME(cancel, Parse<v1::CancelTransfersRequest>(EncodeCancel(127, 3, "out of data")));
  v1::GetTransfersRequest get;
  for (uint64_t id : {127, 128, 129}) get.add_transfer_ids(id);
  EXPECT_SAME(get, Parse<v1::GetTransfersRequest>(EncodeGetTransfers(127, 3)));
  v1::WatchTransfersRequest watch;
  EXPECT_SAME(watch, Parse<v1::WatchTransfersRequest>(EncodeWatch(0)));
  watch.set_after_event(1ull << 50);
  EXPECT_SAME(watch, Parse<v1::WatchTransfersRequest>(EncodeWatch(1ull << 50)));
}

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
  EXPECT_THAT(status->violations, testing::ElementsAre(testing::Pair("buffers[0]", "why 0"),
                                                       testing::Pair("buffers[1]", "why 1")));
}

TEST(CodecTest, Statuses) {
  ExpectFull(DecodeStatus(FullStatus().SerializeAsString()));
  EXPECT_EQ(DecodeStatus(""), nullptr);
  EXPECT_EQ(DecodeStatus("\x12\xff"), nullptr);
}

TEST(CodecTest, WelcomeIsRead) {
  v1::AttachResponse message;
  message.set_sequence(7);
  auto* welcome = message.mutable_welcome();
  welcome->set_protocol(1);
  welcome->set_features(3);
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
  EXPECT_EQ(response.welcome.features, 3u);
  EXPECT_EQ(response.welcome.session_id, 1ull << 40);
  EXPECT_EQ(response.welcome.token, std::string("\0token", 6));
  EXPECT_EQ(response.welcome.node, "node-a");
  ASSERT_EQ(response.welcome.devices.size(), 2u);
  EXPECT_EQ(response.welcome.devices[1].id, 101u);
  EXPECT_EQ(response.welcome.devices[0].kind, 1);
  EXPECT_EQ(response.welcome.devices[1].kind, 2);
  EXPECT_EQ(response.welcome.devices[1].name, "dev1");
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
  EXPECT_EQ(decode(message).kind, Kind::kArenaRegistered);
  EXPECT_EQ(decode(message).arena_id, 1ull << 60);
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
  v1::PostTransfersResponse stream;
  stream.set_sequence(5);
  stream.set_first_transfer_id(302);
  stream.set_first_over_value(3);
  stream.set_prepared_batch(4);
  ASSERT_TRUE(DecodeStreamPostAnswer(stream.SerializeAsString(), &answer));
  EXPECT_EQ(answer.sequence, 5u);
  EXPECT_EQ(answer.first_transfer_id, 302u);
  EXPECT_EQ(answer.first_over_value, 3u);
  EXPECT_EQ(answer.prepared_batch, 4u);
  EXPECT_EQ(answer.error, nullptr);
  *stream.mutable_error() = FullStatus();
  ASSERT_TRUE(DecodeStreamPostAnswer(stream.SerializeAsString(), &answer));
  ExpectFull(answer.error);
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
    EXPECT_EQ((*list)[0].status, nullptr);
    EXPECT_EQ((*list)[1].id, 501u);
    ExpectFull((*list)[1].status);
  }
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
