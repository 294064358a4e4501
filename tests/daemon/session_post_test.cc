// SPDX-License-Identifier: Apache-2.0
// What a session checks, completes, admits and remembers of the batches it posts.
#include <string>
#include <vector>

#include "daemon/domain_tag.h"
#include "tests/daemon/session_rig.h"

namespace ferry {
namespace {

using testing::Is;
using ::testing::IsEmpty;
using testing::kNow;
using testing::SessionRig;
using ::testing::SizeIs;

constexpr uint64_t kMax = ~uint64_t{0};

TEST(SessionPost, DomainDeadlineAndTimelineAreFilledIn) {
  SessionRig rig;
  PostBatch batch = rig.Empty(2);
  batch.over_timeline = 3;
  batch.deadlines[1] = absl::Seconds(7);
  EXPECT_THAT(rig.session.CheckAndComplete(batch, kNow), IsEmpty());
  EXPECT_EQ(batch.domain, TagOfUid("", 1000));
  EXPECT_EQ(batch.specs[0].key.domain, batch.domain);
  EXPECT_EQ(batch.specs[0].over_timeline, 3u);
  EXPECT_EQ(batch.specs[0].deadline, kNow + absl::Seconds(60));
  EXPECT_EQ(batch.specs[1].deadline, kNow + absl::Seconds(7));
  batch.domain = "job";
  EXPECT_THAT(rig.session.CheckAndComplete(batch, kNow), IsEmpty());
  EXPECT_EQ(batch.specs[1].key.domain, TagOfName("", "job"));
}

// Of one session of another user.
TEST(SessionPost, ANameThatLooksLikeAUidsIsNotTheUids) {
  SessionRig rig;
  PostBatch own = rig.Empty(1);
  EXPECT_THAT(rig.session.CheckAndComplete(own, kNow), IsEmpty());
  const std::string tag = TagOfUid("", 1000);
  ASSERT_EQ(own.domain, tag);
  for (const std::string& name :
       {std::string("uid:1000"), std::string("of uid 1000"), std::string("1000"), tag}) {
    PostBatch batch = rig.Empty(1);
    batch.domain = name;
    EXPECT_THAT(rig.session.CheckAndComplete(batch, kNow), IsEmpty());
    EXPECT_NE(batch.domain, tag) << name;
    EXPECT_EQ(batch.domain.size(), kDomainTagBytes);
  }
}

TEST(SessionPost, ADomainsTagIsTheSameHoweverManyThereAre) {
  SessionRig rig;
  for (size_t i = 0; i < 3 * Session::kDomainsKept; ++i) {
    for (const std::string& name : {std::string("job"), absl::StrCat("job ", i)}) {
      PostBatch batch = rig.Empty(1);
      batch.domain = name;
      EXPECT_THAT(rig.session.CheckAndComplete(batch, kNow), IsEmpty());
      EXPECT_EQ(batch.domain, TagOfName("", name));
    }
  }
}

TEST(SessionPost, TagsAreOfTheirClusterAndTellNoName) {
  EXPECT_NE(DomainKey("secret", "boot"), DomainKey("other", "boot"));
  EXPECT_EQ(DomainKey("secret", "boot"), DomainKey("secret", "another host"));
  EXPECT_NE(DomainKey("", "boot"), DomainKey("", "another host"));
  EXPECT_NE(DomainKey("", "boot"), DomainKey("boot", "boot"));
  EXPECT_NE(TagOfUid(DomainKey("secret", ""), 0), TagOfUid(DomainKey("other", ""), 0));
  EXPECT_NE(TagOfName("key", "job"), TagOfName("key", "joc"));
  EXPECT_EQ(TagOfName("key", "a job's secret").find("secret"), std::string::npos);
}

TEST(SessionPost, RangesMustLieInsideTheirArena) {
  SessionRig rig;
  rig.AddArena(7, 100);
  struct Case {
    uint64_t offset, length;
    bool good;
  };
  for (const Case& c : std::vector<Case>{{0, 100, true},
                                         {99, 1, true},
                                         {100, 0, true},
                                         {0, 101, false},
                                         {100, 1, false},
                                         {101, 0, false},
                                         {kMax, 1, false},
                                         {kMax, 2, false},
                                         {kMax - 49, 50, false},
                                         {1, kMax, false},
                                         {50, kMax - 49, false}}) {
    SCOPED_TRACE(absl::StrCat("[", c.offset, ", +", c.length, ")"));
    PostBatch batch =
        rig.Batch({{{ArenaId(7), 0, 1}}, {{ArenaId(7), 0, 1}, {ArenaId(7), c.offset, c.length}}});
    const std::vector<Violation> violations = rig.session.CheckAndComplete(batch, kNow);
    if (c.good) {
      EXPECT_THAT(violations, IsEmpty());
      continue;
    }
    ASSERT_THAT(violations, SizeIs(1));
    EXPECT_EQ(violations[0].field, "buffers[1].ranges[1]");
    EXPECT_THAT(violations[0].status,
                Is("INVALID_ARGUMENT/RANGE_INVALID",
                   absl::StrCat("bytes [", c.offset, ", +", c.length,
                                ") are not inside arena 7, which has 100 bytes")));
  }
}

TEST(SessionPost, BlocksMustLieInsideTheirArena) {
  SessionRig rig;
  rig.AddArena(7, 100);
  const auto strided = [](uint64_t offset, uint64_t block, uint64_t stride, uint64_t count) {
    return *Layout::Strided(ArenaId(7), offset, block, stride, count);
  };
  const auto table = [](uint64_t offset, std::vector<uint64_t> indices) {
    return *Layout::BlockTable(ArenaId(7), offset, 10, std::move(indices));
  };
  PostBatch good = rig.Batch({strided(0, 10, 30, 4), strided(3, 1, 2, 49), strided(100, 9, 9, 0),
                              table(0, {9, 0, 9}), table(5, {8}), table(100, {})});
  EXPECT_THAT(rig.session.CheckAndComplete(good, kNow), IsEmpty());

  PostBatch bad = rig.Batch({strided(1, 10, 30, 4), table(0, {1, 10, 2}), table(1, {9}),
                             strided(101, 9, 9, 0), *Layout::BlockTable(ArenaId(8), 0, 10, {0})});
  const std::vector<Violation> violations = rig.session.CheckAndComplete(bad, kNow);
  ASSERT_THAT(violations, SizeIs(5));
  EXPECT_EQ(violations[0].field, "buffers[0].strided");
  EXPECT_THAT(violations[0].status,
              Is("INVALID_ARGUMENT/RANGE_INVALID",
                 "block 3: bytes [91, +10) are not inside arena 7, which has 100 bytes"));
  EXPECT_EQ(violations[1].field, "buffers[1].blocks");
  EXPECT_THAT(violations[1].status, Is("INVALID_ARGUMENT/RANGE_INVALID",
                                       "block 1 (index 10): bytes [100, +10) are not inside"));
  EXPECT_THAT(violations[2].status,
              Is("INVALID_ARGUMENT/RANGE_INVALID", "block 0 (index 9): bytes [91, +10)"));
  EXPECT_THAT(violations[3].status, Is("INVALID_ARGUMENT/RANGE_INVALID", "bytes [101, +0)"));
  EXPECT_THAT(violations[4].status, Is("NOT_FOUND/ARENA_NOT_FOUND"));
}

TEST(SessionPost, ATableKeepsItsArenaUntilItIsOver) {
  SessionRig rig;
  rig.AddArena(7, 100);
  PostBatch batch = rig.Batch({*Layout::BlockTable(ArenaId(7), 0, 10, {1, 2, 3})});
  ASSERT_THAT(rig.session.CheckAndComplete(batch, kNow), IsEmpty());
  const PostReply reply = rig.session.Admit(batch);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)),
              Is("FAILED_PRECONDITION/FIELD_INVALID", "1 transfers use it"));
  rig.End(batch, reply, 0);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)), Is("OK"));
}

TEST(SessionPost, AnArenaCountsTransfersNotTheirRanges) {
  SessionRig rig;
  rig.AddArena(7, 100);
  rig.AddArena(8, 100);
  PostBatch batch = rig.Batch({Layout({{ArenaId(7), 0, 1},
                                       {ArenaId(8), 0, 1},
                                       {ArenaId(7), 2, 1},
                                       {ArenaId(7), 4, 1},
                                       {ArenaId(8), 2, 1}}),
                               Layout({{ArenaId(7), 8, 1}})});
  ASSERT_THAT(rig.session.CheckAndComplete(batch, kNow), IsEmpty());
  const PostReply reply = rig.session.Admit(batch);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)),
              Is("FAILED_PRECONDITION/FIELD_INVALID", "2 transfers use it"));
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(8)),
              Is("FAILED_PRECONDITION/FIELD_INVALID", "1 transfers use it"));
  rig.End(batch, reply, 0);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(8)), Is("OK"));
  rig.End(batch, reply, 1);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)), Is("OK"));
}

TEST(SessionPost, EveryBadRangeIsListed) {
  SessionRig rig;
  rig.AddArena(7, 100);
  rig.AddArena(8, 100, /*device=*/2);
  rig.AddArena(9, 100);
  ASSERT_THAT(rig.session.arenas().Take(ArenaId(9)), Is("OK"));
  PostBatch batch = rig.Batch({{{ArenaId(6), 0, 1}, {ArenaId(7), 0, 1}, {ArenaId(6), 0, 1}},
                               {{ArenaId(8), 0, 1}},
                               {{ArenaId(7), 0, 1}},
                               {{ArenaId(9), 0, 1}, {ArenaId(7), 0, 101}}});
  const std::vector<Violation> violations = rig.session.CheckAndComplete(batch, kNow);
  ASSERT_THAT(violations, SizeIs(5));
  EXPECT_EQ(violations[0].field, "buffers[0].ranges[0]");
  EXPECT_THAT(violations[0].status, Is("NOT_FOUND/ARENA_NOT_FOUND"));
  EXPECT_EQ(violations[1].field, "buffers[0].ranges[2]");
  EXPECT_EQ(violations[2].field, "buffers[1].ranges[0]");
  EXPECT_THAT(violations[2].status, Is("INVALID_ARGUMENT/FIELD_INVALID",
                                       "arena 8 is on device 2, the batch is for device 1"));
  EXPECT_EQ(violations[3].field, "buffers[3].ranges[0]");
  EXPECT_THAT(violations[3].status, Is("NOT_FOUND/ID_STALE"));
  EXPECT_EQ(violations[4].field, "buffers[3].ranges[1]");
  const absl::Status refused = RefusedBatch(violations, batch.specs.size());
  EXPECT_THAT(refused,
              Is("NOT_FOUND/ARENA_NOT_FOUND",
                 "nothing was posted: 5 problems in a batch of 4; buffers[0].ranges[0]: arena 6"));
}

TEST(SessionPost, AnOverCounterStaysWithTheDeviceOfItsFirstUse) {
  SessionRig rig;
  PostBatch first = rig.Empty(1);
  first.over_timeline = 2;
  EXPECT_THAT(rig.session.CheckAndComplete(first, kNow), IsEmpty());
  PostBatch other = rig.Empty(1);
  other.over_timeline = 2;
  other.device = GlobalDeviceId(4);
  // Only an admitted batch binds it.
  EXPECT_THAT(rig.session.CheckAndComplete(other, kNow), IsEmpty());
  rig.session.Admit(first);
  const std::vector<Violation> violations = rig.session.CheckAndComplete(other, kNow);
  ASSERT_THAT(violations, SizeIs(1));
  EXPECT_EQ(violations[0].field, "options.over_timeline");
  EXPECT_THAT(violations[0].status,
              Is("INVALID_ARGUMENT/FIELD_INVALID",
                 "'over' counter 2 is bound to device 1; use another one for device 4"));
  other.over_timeline = 63;
  EXPECT_THAT(rig.session.CheckAndComplete(other, kNow), IsEmpty());
  EXPECT_THAT(rig.session.CheckAndComplete(first, kNow), IsEmpty());
}

TEST(SessionPost, TransfersInFlightAreLimited) {
  SessionRig rig;
  PostBatch eleven = rig.Empty(11);
  const std::vector<Violation> never = rig.session.CheckAndComplete(eleven, kNow);
  ASSERT_THAT(never, SizeIs(1));
  EXPECT_EQ(RetryAfterOf(never[0].status), absl::ZeroDuration());  // waiting does not help
  PostBatch eight = rig.Empty(8);
  const PostReply reply = rig.Post(eight);
  PostBatch three = rig.Empty(3);
  const std::vector<Violation> violations = rig.session.CheckAndComplete(three, kNow);
  ASSERT_THAT(violations, SizeIs(1));
  EXPECT_THAT(violations[0].status,
              Is("RESOURCE_EXHAUSTED/QUEUE_FULL",
                 "post 3 transfers: session 5 has 8 of 10 transfers in flight"));
  EXPECT_EQ(RetryAfterOf(violations[0].status), RetryAfter::kUnknown);
  rig.End(eight, reply, 5);
  rig.session.AfterEndings(kNow);
  EXPECT_THAT(rig.session.CheckAndComplete(three, kNow), IsEmpty());
  // One of the two places wanted becomes free each second, as far as is known.
  PostBatch five = rig.Empty(5);
  EXPECT_EQ(RetryAfterOf(rig.session.CheckAndComplete(five, kNow)[0].status), absl::Seconds(2));
}

Layout Apart(size_t ranges) {
  std::vector<Range> apart;
  for (size_t i = 0; i < ranges; ++i) apart.push_back({ArenaId(7), 2 * i, 1});
  return Layout(std::move(apart));
}

TEST(SessionPost, WhatIsKeptIsLimitedAndGivenBack) {
  SessionRig rig({{1000, 3, 100, 4096}, absl::Seconds(60), 16384, /*record_bytes=*/8192});
  rig.AddArena(7, 1000);
  PostBatch never = rig.Batch({Apart(400)});
  const std::vector<Violation> refused = rig.session.CheckAndComplete(never, kNow);
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].field, "buffers");
  EXPECT_THAT(refused[0].status, Is("RESOURCE_EXHAUSTED/QUEUE_FULL",
                                    "session 5 has 0 of 8192 here "
                                    "(limits.session_kept_bytes); post fewer"));
  EXPECT_EQ(RetryAfterOf(refused[0].status), absl::ZeroDuration());

  PostBatch two = rig.Batch({Apart(50), Apart(50)});
  const PostReply reply = rig.Post(two);
  EXPECT_GT(rig.session.record_bytes(), 100 * sizeof(Range));
  EXPECT_EQ(rig.of_uid.bytes(), rig.session.record_bytes());
  PostBatch more = rig.Batch({Apart(150)});
  const std::vector<Violation> full = rig.session.CheckAndComplete(more, kNow);
  ASSERT_THAT(full, SizeIs(1));
  EXPECT_GT(RetryAfterOf(full[0].status), absl::ZeroDuration());
  rig.End(two, reply, 0);
  rig.End(two, reply, 1);
  rig.session.AfterEndings(kNow);
  EXPECT_EQ(rig.session.record_bytes(), 0u);
  EXPECT_EQ(rig.of_uid.bytes(), 0u);
  EXPECT_THAT(rig.session.CheckAndComplete(more, kNow), IsEmpty());
}

TEST(SessionPost, TextsOfFailuresAreForgottenWhenTheyAreTooMuch) {
  SessionRig rig({{1000, 3, 10'000, 4096}, absl::Seconds(60)});
  const size_t many = EndingLog::kFailureBytesKept / 1000 + 10;
  PostBatch batch = rig.Empty(many);
  const PostReply reply = rig.Post(batch);
  for (size_t i = 0; i < many; ++i) {
    rig.End(batch, reply, i, absl::AbortedError(std::string(1000, 'x')));
  }
  EXPECT_EQ(rig.session.endings().FindFailure(reply.first_transfer_id), std::nullopt);
  EXPECT_GE(rig.session.endings().forgotten_failures(), reply.first_transfer_id);
  EXPECT_NE(rig.session.endings().FindFailure(reply.first_transfer_id + many - 1), std::nullopt);
}

TEST(SessionPost, DataMayBeDefinedAlready) {
  SessionRig rig;
  rig.pages().defined[6].value = 10;
  PostBatch batch = rig.Empty(4);
  const uint64_t values[] = {0, 10, 11, kMax};
  for (int i = 0; i < 4; ++i) {
    batch.specs[i].defined = false;
    batch.specs[i].defined_timeline = 6;
    batch.specs[i].defined_value = values[i];
  }
  EXPECT_THAT(rig.session.CheckAndComplete(batch, kNow), IsEmpty());
  EXPECT_TRUE(batch.specs[0].defined);
  EXPECT_TRUE(batch.specs[1].defined);
  EXPECT_FALSE(batch.specs[2].defined);
  EXPECT_FALSE(batch.specs[3].defined);
}

TEST(SessionPost, IdsAndOverValuesCountUp) {
  SessionRig rig;
  PostBatch first = rig.Empty(3);
  PostReply reply = rig.Post(first);
  EXPECT_THAT(reply.status, Is("OK"));
  EXPECT_EQ(reply.first_transfer_id, 1u);
  EXPECT_EQ(reply.first_over_value, 1u);
  EXPECT_EQ(first.specs[2].over_value, 3u);
  PostBatch other = rig.Empty(2);  // ids go on, values are each counter's own
  other.over_timeline = 1;
  reply = rig.Post(other);
  EXPECT_EQ(reply.first_transfer_id, 4u);
  EXPECT_EQ(reply.first_over_value, 1u);
  PostBatch again = rig.Empty(1);
  reply = rig.Post(again);
  EXPECT_EQ(reply.first_transfer_id, 6u);
  EXPECT_EQ(reply.first_over_value, 4u);
  EXPECT_EQ(again.specs[0].over_value, 4u);
  PostBatch nothing = rig.Empty(0);
  reply = rig.Post(nothing);
  EXPECT_EQ(reply.first_transfer_id, 7u);
  EXPECT_EQ(rig.session.use().transfers_in_flight, 6u);
}

TEST(SessionRequests, ARepeatedOneGetsTheFirstAnswer) {
  SessionRig rig;
  PostBatch batch = rig.Empty(2);
  batch.request_id = "r1";
  batch.request_hash = 77;
  EXPECT_FALSE(rig.session.requests().Find(batch).has_value());
  rig.session.requests().Remember(batch, rig.Post(batch));
  const std::optional<PostReply> again = rig.session.requests().Find(batch);
  ASSERT_TRUE(again.has_value());
  EXPECT_THAT(again->status, Is("OK"));
  EXPECT_EQ(again->first_transfer_id, 1u);
  EXPECT_EQ(again->first_over_value, 1u);
}

TEST(SessionRequests, TheSameIdWithAnotherBatchIsRefused) {
  SessionRig rig;
  PostBatch batch = rig.Empty(2);
  batch.request_id = "r1";
  batch.request_hash = 77;
  rig.session.requests().Remember(batch, rig.Post(batch));
  batch.request_hash = 78;
  const std::optional<PostReply> reply = rig.session.requests().Find(batch);
  ASSERT_TRUE(reply.has_value());
  EXPECT_THAT(reply->status,
              Is("ALREADY_EXISTS/REQUEST_ID_REUSED", "request id 'r1' was used before"));
}

TEST(SessionRequests, WithoutAnIdNothingIsRepeated) {
  SessionRig rig;
  PostBatch batch = rig.Empty(1);
  rig.session.requests().Remember(batch, rig.Post(batch));
  EXPECT_FALSE(rig.session.requests().Find(batch).has_value());
}

TEST(SessionRequests, TheLast1024AreKept) {
  SessionRig rig;
  const auto request = [](uint64_t i) {
    PostBatch batch;
    batch.request_id = absl::StrCat("r", i);
    batch.request_hash = i;
    return batch;
  };
  const auto remember = [&](uint64_t i) {
    PostReply reply;
    reply.first_transfer_id = i;
    rig.session.requests().Remember(request(i), reply);
  };
  for (uint64_t i = 0; i < 1024; ++i) remember(i);
  EXPECT_TRUE(rig.session.requests().Find(request(0)).has_value());
  remember(1024);
  EXPECT_FALSE(rig.session.requests().Find(request(0)).has_value());
  for (const uint64_t i : {1, 1024}) {
    ASSERT_TRUE(rig.session.requests().Find(request(i)).has_value()) << i;
    EXPECT_EQ(rig.session.requests().Find(request(i))->first_transfer_id, i);
  }
  remember(0);  // a forgotten one is a new one
  EXPECT_TRUE(rig.session.requests().Find(request(0)).has_value());
  EXPECT_FALSE(rig.session.requests().Find(request(1)).has_value());
}

}  // namespace
}  // namespace ferry
