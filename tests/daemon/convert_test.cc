// SPDX-License-Identifier: Apache-2.0
// Whole batches: lists, options, and what a good batch becomes. Single buffers:
// convert_buffer_test.cc.
#include "daemon/rpc/convert.h"

#include <string>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Sends of `count` buffers of 8 bytes that follow one another in arena 1.
v1::CrossHostSendRequest Sends(int count) {
  v1::CrossHostSendRequest request;
  request.set_device_id(1);
  for (int i = 0; i < count; ++i) {
    v1::BufferRange* range = request.add_buffers()->add_ranges();
    range->set_arena_id(1);
    range->set_offset(8 * static_cast<uint64_t>(i));
    range->set_length(8);
    request.add_dst_global_device_ids(2);
    request.add_transfer_keys(absl::StrCat("k", i));
  }
  return request;
}

// The only violation of `batch`.
template <typename Request>
Violation OnlyViolation(const Request& request) {
  const PostBatch batch = Convert(request);
  EXPECT_THAT(batch.violations, SizeIs(1));
  return batch.violations.empty() ? Violation{} : batch.violations.front();
}

TEST(Convert, SendListsOfThreeLengthsAreRefusedInTheWordsOfXla) {
  v1::CrossHostSendRequest request = Sends(3);
  request.mutable_dst_global_device_ids()->RemoveLast();
  request.mutable_transfer_keys()->RemoveLast();
  request.mutable_transfer_keys()->RemoveLast();
  const Violation violation = OnlyViolation(request);
  EXPECT_EQ(violation.field, "buffers");
  EXPECT_THAT(violation.status, Is("INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_EQ(
      violation.status.message(),
      "CrossHostSendBuffers: buffers, dst_global_device_ids, and transfer_keys must have the same "
      "length, but got 3, 2, and 1.");
}

TEST(Convert, ReceiveListsOfThreeLengthsAreRefusedInTheWordsOfXla) {
  v1::CrossHostReceiveRequest request;
  request.add_src_global_device_ids(2);
  const Violation violation = OnlyViolation(request);
  EXPECT_THAT(violation.status, Is("INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_EQ(
      violation.status.message(),
      "CrossHostReceiveBuffers: buffers, src_global_device_ids, and transfer_keys must have the "
      "same length, but got 0, 1, and 0.");
}

TEST(Convert, EachOfTheThreeListsMayBeTheOddOne) {
  v1::CrossHostSendRequest request = Sends(2);
  request.add_transfer_keys("one more");
  EXPECT_THAT(OnlyViolation(request).status, Is("INVALID_ARGUMENT/FIELD_INVALID", "2, 2, and 3."));
  request = Sends(2);
  request.add_dst_global_device_ids(2);
  EXPECT_THAT(OnlyViolation(request).status, Is("INVALID_ARGUMENT/FIELD_INVALID", "2, 3, and 2."));
  request = Sends(2);
  request.add_buffers();
  EXPECT_THAT(OnlyViolation(request).status, Is("INVALID_ARGUMENT/FIELD_INVALID", "3, 2, and 2."));
}

TEST(Convert, AReceiveOfNothingIsRefusedAndASendOfNothingIsNot) {
  const Violation violation = OnlyViolation(v1::CrossHostReceiveRequest());
  EXPECT_EQ(violation.status.message(), "shapes parameter empty in CrossHostReceiveBuffers");
  const PostBatch batch = Convert(v1::CrossHostSendRequest());
  EXPECT_THAT(batch.violations, IsEmpty());
  EXPECT_THAT(batch.specs, IsEmpty());
}

TEST(Convert, ABatchHasAtMost4096Transfers) {
  EXPECT_THAT(Convert(Sends(4096)).violations, IsEmpty());
  const Violation violation = OnlyViolation(Sends(4097));
  EXPECT_EQ(violation.field, "buffers");
  EXPECT_THAT(violation.status,
              Is("INVALID_ARGUMENT/BATCH_TOO_LARGE", "4097 transfers in one batch, at most 4096"));
}

TEST(Convert, ABatchHasAtMostOneMebibyte) {
  v1::CrossHostSendRequest request = Sends(1);
  const size_t without = request.ByteSizeLong();
  // A field that bears any length, so that the limit is met to the byte.
  const auto pad = [&](size_t total) {
    size_t length = total - without;
    do {
      request.set_request_id(std::string(length--, 'x'));
    } while (request.ByteSizeLong() > total);
    EXPECT_EQ(request.ByteSizeLong(), total);
  };
  pad(1 << 20);
  EXPECT_EQ(OnlyViolation(request).field, "request_id");
  pad((1 << 20) + 1);
  EXPECT_THAT(OnlyViolation(request).status,
              Is("INVALID_ARGUMENT/BATCH_TOO_LARGE", "a batch of 1048577 bytes, at most 1048576"));
}

TEST(Convert, RequestIdsHaveAtMost64Bytes) {
  v1::CrossHostSendRequest request = Sends(1);
  request.set_request_id(std::string(64, 'r'));
  EXPECT_THAT(Convert(request).violations, IsEmpty());
  EXPECT_EQ(Convert(request).request_id, std::string(64, 'r'));
  request.set_request_id(std::string(65, 'r'));
  EXPECT_EQ(OnlyViolation(request).field, "request_id");
  EXPECT_THAT(OnlyViolation(request).status,
              Is("INVALID_ARGUMENT/FIELD_INVALID", "at most 64 bytes, not 65"));
}

TEST(Convert, EqualRequestsHaveEqualHashesAndOthersDoNot) {
  v1::CrossHostSendRequest request = Sends(2);
  request.set_request_id("again");
  const uint64_t hash = Convert(request).request_hash;
  EXPECT_EQ(Convert(request).request_hash, hash);
  request.mutable_buffers(1)->mutable_ranges(0)->set_offset(16);
  EXPECT_NE(Convert(request).request_hash, hash);
}

TEST(Convert, ASendAndAReceiveOfTheSameFieldsAreNotEqual) {
  v1::CrossHostSendRequest send = Sends(2);
  send.set_request_id("again");
  v1::CrossHostReceiveRequest receive;
  ASSERT_TRUE(receive.ParseFromString(send.SerializeAsString()));
  EXPECT_NE(Convert(send).request_hash, Convert(receive).request_hash);
}

TEST(Convert, DomainsHaveAtMost32Bytes) {
  v1::CrossHostSendRequest request = Sends(1);
  request.set_domain(std::string(32, 'd'));
  EXPECT_THAT(Convert(request).violations, IsEmpty());
  request.set_domain(std::string(33, 'd'));
  EXPECT_EQ(OnlyViolation(request).field, "domain");
  EXPECT_THAT(OnlyViolation(request).status,
              Is("INVALID_ARGUMENT/FIELD_INVALID", "at most 32 bytes, not 33"));
}

TEST(Convert, KeysHave1To64Bytes) {
  v1::CrossHostSendRequest request = Sends(2);
  request.set_transfer_keys(1, std::string(64, 'k'));
  EXPECT_THAT(Convert(request).violations, IsEmpty());
  for (const size_t bytes : {size_t{0}, size_t{65}}) {
    request.set_transfer_keys(1, std::string(bytes, 'k'));
    EXPECT_EQ(OnlyViolation(request).field, "transfer_keys[1]");
    EXPECT_THAT(OnlyViolation(request).status,
                Is("INVALID_ARGUMENT/FIELD_INVALID", absl::StrCat("1 to 64 bytes, not ", bytes)));
  }
}

TEST(Convert, OverCountersAre0To63) {
  v1::CrossHostSendRequest request = Sends(1);
  request.mutable_options()->set_over_timeline(63);
  EXPECT_THAT(Convert(request).violations, IsEmpty());
  for (const uint32_t timeline : {64u, ~0u}) {
    request.mutable_options()->set_over_timeline(timeline);
    EXPECT_EQ(OnlyViolation(request).field, "options.over_timeline");
    EXPECT_THAT(OnlyViolation(request).status,
                Is("INVALID_ARGUMENT/FIELD_INVALID", absl::StrCat(timeline, " is not below 64")));
  }
}

TEST(Convert, DeadlinesAreMoreThan0AndAtMostAYear) {
  constexpr int64_t kYear = int64_t{365} * 24 * 3600;
  struct Case {
    int64_t seconds;
    int32_t nanos;
    bool good;
  };
  for (const Case& c : std::vector<Case>{{0, 1, true},
                                         {kYear, 0, true},
                                         {0, 0, false},
                                         {-1, 0, false},
                                         {0, -1, false},
                                         {1, -1'000'000'000, false},
                                         {kYear, 1, false},
                                         {INT64_MAX, 999'999'999, false},
                                         {INT64_MIN, 0, false}}) {
    SCOPED_TRACE(absl::StrCat(c.seconds, " s ", c.nanos, " ns"));
    v1::CrossHostSendRequest request = Sends(2);
    const auto set = [&](google::protobuf::Duration* deadline) {
      deadline->set_seconds(c.seconds);
      deadline->set_nanos(c.nanos);
    };
    set(request.mutable_options()->mutable_deadline());
    if (c.good) {
      EXPECT_THAT(Convert(request).violations, IsEmpty());
    } else {
      EXPECT_EQ(OnlyViolation(request).field, "options.deadline");
      EXPECT_THAT(OnlyViolation(request).status,
                  Is("INVALID_ARGUMENT/FIELD_INVALID", "more than 0 and at most a year"));
    }
    request = Sends(2);
    set(request.mutable_buffers(1)->mutable_deadline());
    if (c.good) {
      EXPECT_THAT(Convert(request).violations, IsEmpty());
    } else {
      EXPECT_EQ(OnlyViolation(request).field, "buffers[1].deadline");
      EXPECT_THAT(OnlyViolation(request).status, Is("INVALID_ARGUMENT/FIELD_INVALID"));
    }
  }
}

TEST(Convert, ABuffersDeadlineGoesBeforeTheBatchs) {
  v1::CrossHostSendRequest request = Sends(3);
  EXPECT_EQ(Convert(request).deadlines, std::vector<absl::Duration>(3, absl::ZeroDuration()));
  request.mutable_options()->mutable_deadline()->set_seconds(5);
  request.mutable_buffers(1)->mutable_deadline()->set_nanos(500'000'000);
  EXPECT_EQ(
      Convert(request).deadlines,
      (std::vector<absl::Duration>{absl::Seconds(5), absl::Milliseconds(500), absl::Seconds(5)}));
}

TEST(Convert, WhatABatchContinuesIsTheSessions) {
  v1::CrossHostSendRequest request = Sends(1);
  EXPECT_EQ(Convert(request).continues, 0u);
  request.mutable_options()->set_continues(UINT64_MAX);
  const PostBatch batch = Convert(request);
  EXPECT_THAT(batch.violations, IsEmpty());
  EXPECT_EQ(batch.continues, UINT64_MAX);
}

TEST(Convert, PrioritiesAreWithin100) {
  v1::CrossHostSendRequest request = Sends(1);
  for (const int32_t priority : {-100, 0, 100}) {
    request.mutable_options()->set_priority(priority);
    const PostBatch batch = Convert(request);
    EXPECT_THAT(batch.violations, IsEmpty());
    EXPECT_EQ(batch.specs[0].priority, priority);
  }
  for (const int32_t priority : {-101, 101, INT32_MIN, INT32_MAX}) {
    request.mutable_options()->set_priority(priority);
    EXPECT_EQ(OnlyViolation(request).field, "options.priority");
    EXPECT_THAT(OnlyViolation(request).status, Is("INVALID_ARGUMENT/FIELD_INVALID"));
  }
}

TEST(Convert, RoutesAreThoseOfTheProto) {
  v1::CrossHostSendRequest request = Sends(1);
  for (int route = 0; route < kRoutes; ++route) {
    request.mutable_options()->set_route(static_cast<v1::Route>(route));
    const PostBatch batch = Convert(request);
    EXPECT_THAT(batch.violations, IsEmpty());
    EXPECT_EQ(static_cast<int>(batch.specs[0].route), route);
  }
  for (const int route : {-1, kRoutes, 1000}) {
    request.mutable_options()->set_route(static_cast<v1::Route>(route));
    EXPECT_EQ(OnlyViolation(request).field, "options.route");
    EXPECT_THAT(OnlyViolation(request).status,
                Is("INVALID_ARGUMENT/FIELD_INVALID", absl::StrCat("route ", route, " is unknown")));
  }
}

TEST(Convert, EveryBadEntryIsListed) {
  v1::CrossHostSendRequest request = Sends(6);
  request.set_domain(std::string(33, 'd'));
  request.mutable_options()->set_priority(101);
  request.set_transfer_keys(0, "");
  request.mutable_buffers(2)->mutable_strided();
  request.mutable_buffers(4)->mutable_deadline();
  request.set_transfer_keys(5, std::string(65, 'k'));
  request.mutable_buffers(5)->set_data_type(static_cast<v1::DataType>(99));
  std::vector<std::string> fields;
  for (const Violation& violation : Convert(request).violations) fields.push_back(violation.field);
  EXPECT_THAT(fields, ::testing::UnorderedElementsAre(
                          "domain", "options.priority", "transfer_keys[0]", "buffers[2]",
                          "buffers[4].deadline", "transfer_keys[5]", "buffers[5]"));
}

TEST(Convert, AGoodSendIsTakenOverExactly) {
  v1::CrossHostSendRequest request = Sends(2);
  request.set_domain("job");
  request.set_device_id(7);
  request.set_dst_global_device_ids(1, 9);
  request.set_transfer_keys(1, std::string("\0\1", 2));
  v1::Buffer* buffer = request.mutable_buffers(1);
  v1::BufferRange* range = buffer->add_ranges();
  range->set_arena_id(5);
  range->set_offset(100);
  range->set_length(4);
  buffer->set_data_type(v1::DATA_TYPE_BF16);
  buffer->set_has_shape(true);
  buffer->add_dims(2);
  buffer->add_dims(3);
  buffer->mutable_defined_at()->set_timeline(63);
  buffer->mutable_defined_at()->set_value(12);
  request.mutable_options()->set_over_timeline(4);
  request.mutable_options()->set_priority(-3);
  request.mutable_options()->set_route(v1::ROUTE_UCX);

  const PostBatch batch = Convert(request);
  ASSERT_THAT(batch.violations, IsEmpty());
  EXPECT_EQ(batch.side, Side::kSend);
  EXPECT_EQ(batch.request_id, "");
  EXPECT_EQ(batch.domain, "job");
  EXPECT_EQ(batch.device, GlobalDeviceId(7));
  EXPECT_EQ(batch.over_timeline, 4u);
  ASSERT_THAT(batch.specs, SizeIs(2));
  EXPECT_TRUE(batch.specs[0].defined);
  EXPECT_FALSE(batch.specs[0].shape.given);
  EXPECT_EQ(batch.specs[0].key.destination, GlobalDeviceId(2));
  const TransferSpec& spec = batch.specs[1];
  EXPECT_EQ(spec.side, Side::kSend);
  EXPECT_EQ(spec.key.source, GlobalDeviceId(7));
  EXPECT_EQ(spec.key.destination, GlobalDeviceId(9));
  EXPECT_EQ(spec.key.key, std::string("\0\1", 2));
  EXPECT_EQ(spec.layout, (Layout{{ArenaId(1), 8, 8}, {ArenaId(5), 100, 4}}));
  EXPECT_EQ(spec.bytes, 12u);
  EXPECT_EQ(spec.data_type, DataType::kBF16);
  EXPECT_EQ(spec.shape.ToString(), "[2,3]");
  EXPECT_EQ(spec.route, Route::kUcx);
  EXPECT_EQ(spec.priority, -3);
  EXPECT_FALSE(spec.defined);
  EXPECT_EQ(spec.defined_timeline, 63u);
  EXPECT_EQ(spec.defined_value, 12u);
}

TEST(Convert, AGoodReceiveComesFromTheRemoteDevice) {
  v1::CrossHostReceiveRequest request;
  request.set_device_id(7);
  request.add_buffers();
  request.add_src_global_device_ids(9);
  request.add_transfer_keys("k");
  const PostBatch batch = Convert(request);
  ASSERT_THAT(batch.violations, IsEmpty());
  EXPECT_EQ(batch.side, Side::kReceive);
  ASSERT_THAT(batch.specs, SizeIs(1));
  EXPECT_EQ(batch.specs[0].side, Side::kReceive);
  EXPECT_EQ(batch.specs[0].key.source, GlobalDeviceId(9));
  EXPECT_EQ(batch.specs[0].key.destination, GlobalDeviceId(7));
  EXPECT_EQ(batch.specs[0].bytes, 0u);
  EXPECT_THAT(batch.specs[0].layout.extents(), IsEmpty());
}

}  // namespace
}  // namespace ferry
