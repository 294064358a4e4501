// SPDX-License-Identifier: Apache-2.0
// What the client writes, against protoc, field by field.
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
  expected.mutable_hello()->set_protocol_min(2);
  expected.mutable_hello()->set_protocol_max(2);
  expected.mutable_hello()->set_name("trainer-7");
  expected.mutable_hello()->set_client_version(FERRY_VERSION);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeHello(1, "trainer-7", nullptr)));

  Resumption resume{{{0, 0, 0}, {300, 7, 2}, {1ull << 61, 0, 0}}, 1ull << 39, ~0ull, 1ull << 61};
  auto* resumed = expected.mutable_hello()->mutable_resume();
  resumed->add_over();
  auto* counter = resumed->add_over();
  counter->set_value(300);
  counter->set_first_failed(7);
  counter->set_failures(2);
  resumed->add_over()->set_value(1ull << 61);
  resumed->set_next_transfer_id(1ull << 39);
  resumed->set_incarnation(~0ull);
  resumed->set_prepared_from(1ull << 61);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeHello(1, "trainer-7", &resume)));
}

TEST(CodecTest, AttachRequests) {
  v1::AttachRequest expected;
  expected.set_sequence(300);
  expected.mutable_register_arena()->set_device_id(1ull << 40);
  expected.mutable_register_arena()->set_bytes(1ull << 50);
  expected.mutable_register_arena()->set_imported(true);
  expected.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_MEMFD);
  ArenaRequest arena{1ull << 40, 1ull << 50, true};
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeRegisterArena(300, arena)));
  expected.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_VMM);
  expected.mutable_register_arena()->add_segment_bytes(2 << 20);
  expected.mutable_register_arena()->add_segment_bytes(1ull << 40);
  arena.memory = ArenaMemory::kCudaVmm;
  arena.segment_bytes = {2 << 20, 1ull << 40};
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeRegisterArena(300, arena)));
  expected.mutable_register_arena()->Clear();  // all zero, yet there
  expected.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_ALLOCATE);
  arena = {};
  arena.memory = ArenaMemory::kCudaAllocate;
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeRegisterArena(300, arena)));
  expected.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_IPC);
  expected.mutable_register_arena()->set_ipc_handle(std::string(64, '\0'));
  expected.mutable_register_arena()->set_ipc_offset(1ull << 33);
  arena.memory = ArenaMemory::kCudaIpc;
  arena.ipc_handle = std::string(64, '\0');
  arena.ipc_offset = 1ull << 33;
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeRegisterArena(300, arena)));
  expected.mutable_register_arena()->Clear();
  expected.mutable_release_arena()->set_arena_id(77);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeReleaseArena(300, 77, false)));
  expected.mutable_release_arena()->set_freed(true);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeReleaseArena(300, 77, true)));
  expected.mutable_reset_timeline()->set_timeline(63);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeResetTimeline(300, 63)));
  expected.mutable_reset_timeline()->set_timeline(0);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeResetTimeline(300, 0)));
  expected.mutable_release_prepared()->set_prepared_batch(255);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeReleasePrepared(300, 255)));
  expected.mutable_release_prepared()->set_prepared_batch(0);
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodeReleasePrepared(300, 0)));
  expected.mutable_ping();
  EXPECT_SAME(expected, Parse<v1::AttachRequest>(EncodePing(300)));
}

struct Batch {
  ferry_arena arenas[2] = {{nullptr, 0, 0, false}, {nullptr, 0, 0, false}};
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
    options.continues = 1ull << 35;
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
    options->set_continues(1ull << 35);
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
  EXPECT_TRUE(Parse<v1::AttachRequest>(EncodeSocketPost(1, batch)).has_receive());
}

TEST(CodecTest, DataTypesAndRoutesHaveTheWiresNumbers) {
  EXPECT_EQ(int{FERRY_PRED}, v1::DATA_TYPE_PRED);
  EXPECT_EQ(int{FERRY_U64}, v1::DATA_TYPE_U64);
  EXPECT_EQ(int{FERRY_BF16}, v1::DATA_TYPE_BF16);
  EXPECT_EQ(int{FERRY_C128}, v1::DATA_TYPE_C128);
  EXPECT_EQ(int{FERRY_F4E2M1FN}, v1::DATA_TYPE_F4E2M1FN);
  EXPECT_EQ(int{FERRY_F4E2M1FN}, v1::DataType_MAX);
  EXPECT_EQ(int{FERRY_ROUTE_TCP}, v1::ROUTE_TCP);
  EXPECT_EQ(int{FERRY_ROUTE_TCP}, v1::Route_MAX);
}

TEST(CodecTest, LargeBatch) {
  ferry_arena arena{nullptr, 0, 0, false};
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
  cancel.mutable_poison()->set_message("? \u00e9 \u20ac \U0001f600 ??? ?");
  EXPECT_SAME(cancel, Parse<v1::CancelTransfersRequest>(
                          EncodeCancel(127, 3, "\xff \u00e9 \u20ac \U0001f600 \xed\xa0\x80 \xe2")));
  v1::GetTransfersRequest get;
  for (uint64_t id : {127, 128, 129}) get.add_transfer_ids(id);
  EXPECT_SAME(get, Parse<v1::GetTransfersRequest>(EncodeGetTransfers(127, 3)));
  v1::WatchTransfersRequest watch;
  EXPECT_SAME(watch, Parse<v1::WatchTransfersRequest>(EncodeWatch(0)));
  watch.set_after_event(1ull << 50);
  EXPECT_SAME(watch, Parse<v1::WatchTransfersRequest>(EncodeWatch(1ull << 50)));
}

}  // namespace
}  // namespace ferry::client
