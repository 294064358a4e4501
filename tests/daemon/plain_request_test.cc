// SPDX-License-Identifier: Apache-2.0
// What is read in place is what protoc's code reads.
#include "daemon/rpc/plain_request.h"

#include <random>
#include <string>

#include "daemon/rpc/attach_codec.h"
#include "daemon/rpc/convert.h"
#include "ferry/v1/session.pb.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

void ExpectSame(const PostBatch& read, const PostBatch& expected) {
  EXPECT_EQ(read.side, expected.side);
  EXPECT_EQ(read.domain, expected.domain);
  EXPECT_EQ(read.device, expected.device);
  EXPECT_EQ(read.over_timeline, expected.over_timeline);
  EXPECT_EQ(read.prepare, expected.prepare);
  EXPECT_EQ(read.continues, expected.continues);
  EXPECT_EQ(read.deadlines, expected.deadlines);
  EXPECT_EQ(read.extents, expected.extents);
  EXPECT_EQ(read.size, expected.size);
  EXPECT_EQ(read.bad_entries, expected.bad_entries);
  ASSERT_EQ(read.violations.size(), expected.violations.size());
  for (size_t i = 0; i < read.violations.size(); ++i) {
    EXPECT_EQ(read.violations[i].field, expected.violations[i].field);
    EXPECT_EQ(read.violations[i].status, expected.violations[i].status);
  }
  ASSERT_EQ(read.specs.size(), expected.specs.size());
  for (size_t i = 0; i < read.specs.size(); ++i) {
    const TransferSpec &a = read.specs[i], &b = expected.specs[i];
    EXPECT_EQ(a.key, b.key);
    EXPECT_EQ(a.layout, b.layout);
    EXPECT_EQ(a.layout.merged(), b.layout.merged());
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.data_type, b.data_type);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.route, b.route);
    EXPECT_EQ(a.priority, b.priority);
    EXPECT_EQ(a.prepared, b.prepared);
    EXPECT_EQ(a.defined, b.defined);
  }
}

v1::CrossHostSendRequest RandomRequest(std::mt19937_64& random) {
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  const auto number = [&] { return random() >> (random() % 64); };
  v1::CrossHostSendRequest request;
  if (chance(50)) request.set_domain(std::string(random() % 40, 'd'));
  request.set_device_id(number());
  const size_t count = random() % 5;
  for (size_t i = 0; i < count; ++i) {
    v1::Buffer& buffer = *request.add_buffers();
    v1::BufferRange& range = *buffer.add_ranges();
    range.set_arena_id(number());
    range.set_offset(number());
    range.set_length(chance(20) ? 0 : chance(20) ? number() : 8 * (random() % 100));
    if (chance(5)) *buffer.add_ranges() = range;
    if (chance(50)) buffer.set_data_type(static_cast<v1::DataType>(random() % 24));
    if (chance(50)) {
      buffer.set_has_shape(!chance(5));
      for (size_t d = random() % 10; d > 0; --d) {
        buffer.add_dims(chance(5) ? -1 : static_cast<int64_t>(random() % 5));
      }
    }
    if (chance(3)) buffer.mutable_defined_at()->set_value(7);
    if (chance(3)) buffer.mutable_deadline()->set_seconds(7);
    request.add_dst_global_device_ids(number());
    request.add_transfer_keys(std::string(random() % 70, 'k'));
  }
  if (chance(5)) request.add_transfer_keys("one more");
  if (chance(50)) {
    request.mutable_options()->set_over_timeline(static_cast<uint32_t>(random() % 70));
    request.mutable_options()->set_priority(static_cast<int32_t>(random() % 300) - 150);
    request.mutable_options()->set_route(static_cast<v1::Route>(random() % 8));
    if (chance(50)) request.mutable_options()->mutable_deadline()->set_seconds(number() % 100);
    request.mutable_options()->set_continues(number());
  }
  request.set_prepare(chance(20));
  if (chance(5)) request.set_request_id("id");
  return request;
}

TEST(PlainRequest, IsWhatProtocsCodeReads) {
  std::mt19937_64 random(7);
  size_t plain = 0;
  for (int i = 0; i < 20'000; ++i) {
    const v1::CrossHostSendRequest request = RandomRequest(random);
    SCOPED_TRACE(request.DebugString());
    const std::string bytes = request.SerializeAsString();
    const auto read = PlainRequest::Read(bytes);
    const PostBatch expected = Convert(request, bytes.size());
    if (read.has_value()) {
      ++plain;
      ExpectSame(Convert(*read, Side::kSend, bytes.size()), expected);
    }
    v1::AttachRequest packet;
    packet.set_sequence(1 + random() % 1000);
    *packet.mutable_send() = request;
    const std::string sent = packet.SerializeAsString();
    const auto command = ParseAttach(sent);
    ASSERT_TRUE(command.ok());
    EXPECT_EQ(command->sequence, packet.sequence());
    ExpectSame(std::get<PostBatch>(command->body), Convert(request, sent.size()));
    if (HasFailure()) return;
  }
  EXPECT_GT(plain, 10'000u);
}

TEST(PlainRequest, OfBrokenBytesNothingIsReadThatProtocsCodeRefuses) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 20'000; ++i) {
    v1::AttachRequest packet;
    packet.set_sequence(1);
    *packet.mutable_send() = RandomRequest(random);
    std::string bytes = packet.SerializeAsString();
    for (uint64_t change = 1 + random() % 3; change > 0; --change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    v1::AttachRequest again;
    const bool good = again.ParseFromString(bytes) && again.sequence() != 0 &&
                      again.request_case() != v1::AttachRequest::REQUEST_NOT_SET;
    const auto command = ParseAttach(bytes);
    ASSERT_EQ(command.ok(), good) << again.DebugString();
    if (!good || !again.has_send()) continue;
    const auto* const batch = std::get_if<PostBatch>(&command->body);
    ASSERT_NE(batch, nullptr);
    ExpectSame(*batch, Convert(again.send(), bytes.size()));
    if (HasFailure()) FAIL() << again.DebugString();
  }
}

}  // namespace
}  // namespace ferry
