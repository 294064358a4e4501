// SPDX-License-Identifier: Apache-2.0
// A session's quotas, arenas, endings and events. Posting: session_post_test.cc.
#include "daemon/session/session.h"

#include <string>
#include <vector>

#include "tests/daemon/session_rig.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;
using testing::kNow;
using testing::SessionRig;
using ::testing::SizeIs;

const absl::Status kPoison = Error(absl::StatusCode::kAborted, Reason::kPoisoned, "NaN");

TEST(SessionQuota, BytesAreLimitedAndTheTextSaysWhatIsLeft) {
  SessionRig rig;
  EXPECT_THAT(rig.session.arenas().Reserve(600), Is("OK"));
  EXPECT_THAT(rig.session.arenas().Reserve(401),
              Is("RESOURCE_EXHAUSTED/QUOTA_BYTES",
                 "register an arena of 401 bytes: session 5 holds 600 of 1000 bytes "
                 "(limits.session_bytes), 400 are left"));
  EXPECT_THAT(rig.session.arenas().Reserve(~uint64_t{0}), Is("RESOURCE_EXHAUSTED/QUOTA_BYTES"));
  EXPECT_THAT(rig.session.arenas().Reserve(400), Is("OK"));
  EXPECT_EQ(rig.session.use().bytes, 1000u);
}

TEST(SessionQuota, ArenasAreLimited) {
  SessionRig rig;
  for (int i = 0; i < 3; ++i) EXPECT_THAT(rig.session.arenas().Reserve(1), Is("OK"));
  EXPECT_THAT(rig.session.arenas().Reserve(1),
              Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS", "session 5 has 3 of 3 arenas"));
}

TEST(SessionQuota, AnArenaOfSeveralAllocationsCountsForAsMany) {
  SessionRig rig;
  EXPECT_THAT(rig.session.arenas().Reserve(1), Is("OK"));
  EXPECT_THAT(rig.session.arenas().Reserve(1, 3),
              Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS",
                 "session 5 has 1 of 3 arenas, and one of 3 allocations counts for as many"));
  EXPECT_THAT(rig.session.arenas().Reserve(1, 2), Is("OK"));
  EXPECT_THAT(rig.session.arenas().Reserve(1), Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS"));
  rig.session.arenas().Unreserve(1, 2);
  EXPECT_EQ(rig.session.use().arenas, 1u);
}

TEST(SessionQuota, WhatWasNotMappedIsGivenBack) {
  SessionRig rig;
  EXPECT_THAT(rig.session.arenas().Reserve(1000), Is("OK"));
  rig.session.arenas().Unreserve(1000);
  EXPECT_EQ(rig.session.use().bytes, 0u);
  EXPECT_EQ(rig.session.use().arenas, 0u);
  EXPECT_THAT(rig.session.arenas().Reserve(1000), Is("OK"));
}

TEST(SessionArenas, OnesOwnAreFoundAndOthersAreNot) {
  SessionRig rig;
  Arena& arena = rig.AddArena(7, 100);
  const absl::StatusOr<Arena*> found = rig.session.arenas().Find(ArenaId(7));
  ASSERT_THAT(found, Is("OK"));
  EXPECT_EQ(*found, &arena);
  EXPECT_THAT(rig.session.arenas().Find(ArenaId(8)),
              Is("NOT_FOUND/ARENA_NOT_FOUND", "arena 8 is not known to this session"));
}

TEST(SessionArenas, AReleasedOneIsStaleAndItsShareIsFree) {
  SessionRig rig;
  rig.AddArena(7, 1000);
  ASSERT_THAT(rig.session.arenas().Take(ArenaId(7)), Is("OK"));
  EXPECT_THAT(rig.session.arenas().Find(ArenaId(7)),
              Is("NOT_FOUND/ID_STALE", "arena 7 was released"));
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)), Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(8)), Is("NOT_FOUND/ARENA_NOT_FOUND"));
  rig.AddArena(8, 1000);
}

TEST(SessionArenas, OnlyTheLastReleasedOnesAreRemembered) {
  SessionRig rig;
  for (uint64_t id = 1; id <= ArenaBook::kReleasedKept + 1; ++id) {
    rig.AddArena(id, 1);
    ASSERT_THAT(rig.session.arenas().Take(ArenaId(id)), Is("OK"));
  }
  EXPECT_THAT(rig.session.arenas().Find(ArenaId(2)), Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(rig.session.arenas().Find(ArenaId(1)), Is("NOT_FOUND/ARENA_NOT_FOUND"));
}

TEST(SessionArenas, OneInUseIsNotReleased) {
  SessionRig rig;
  rig.AddArena(7, 100);
  PostBatch batch = rig.Batch({{{ArenaId(7), 0, 8}, {ArenaId(7), 8, 8}}, {{ArenaId(7), 0, 0}}});
  const PostReply reply = rig.Post(batch);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)),
              Is("FAILED_PRECONDITION/FIELD_INVALID", "transfers use it"));
  rig.End(batch, reply, 0);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)),
              Is("FAILED_PRECONDITION/FIELD_INVALID", "1 transfers use it"));
  rig.End(batch, reply, 1, kPoison);
  EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)), Is("OK"));
}

TEST(SessionArenas, AFreedOneIsStaleAtOnceAndGoesWithItsLastTransfer) {
  SessionRig rig;
  rig.AddArena(7, 100);
  rig.AddArena(8, 100);
  PostBatch batch = rig.Batch({{{ArenaId(7), 0, 8}, {ArenaId(8), 8, 8}}, {{ArenaId(7), 0, 8}}});
  const PostReply reply = rig.Post(batch);
  EXPECT_THAT(rig.session.arenas().Free(ArenaId(7)), Is("OK"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(rig.session.arenas().Find(ArenaId(7)),
                Is("NOT_FOUND/ID_STALE", "arena 7 was released"));
    EXPECT_THAT(rig.session.arenas().Free(ArenaId(7)), Is("NOT_FOUND/ID_STALE"));
    EXPECT_THAT(rig.session.arenas().Take(ArenaId(7)), Is("NOT_FOUND/ID_STALE"));
    EXPECT_THAT(rig.session.arenas().TakeUnused(), IsEmpty());
    EXPECT_EQ(rig.session.use().bytes, 200u);  // the memory is still there
    EXPECT_EQ(rig.session.use().arenas, 2u);
    if (i == 0) rig.End(batch, reply, 0, kPoison);
  }
  rig.End(batch, reply, 1);
  const std::vector<std::unique_ptr<Arena>> unused = rig.session.arenas().TakeUnused();
  ASSERT_THAT(unused, SizeIs(1));
  EXPECT_EQ(unused[0]->id, ArenaId(7));
  EXPECT_EQ(rig.session.use().bytes, 100u);
  EXPECT_EQ(rig.session.use().arenas, 1u);
  EXPECT_THAT(rig.session.arenas().TakeUnused(), IsEmpty());
  EXPECT_THAT(rig.session.arenas().Find(ArenaId(7)), Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(rig.session.arenas().Find(ArenaId(8)), Is("OK"));  // nobody freed it
}

TEST(SessionArenas, AFreedOneThatNothingUsesIsTakenAtOnce) {
  SessionRig rig;
  rig.AddArena(7, 100);
  const absl::StatusOr<std::unique_ptr<Arena>> taken = rig.session.arenas().Free(ArenaId(7));
  ASSERT_THAT(taken, Is("OK"));
  ASSERT_NE(*taken, nullptr);
  EXPECT_EQ(rig.session.use().bytes, 0u);
  EXPECT_THAT(rig.session.arenas().Free(ArenaId(7)), Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(rig.session.arenas().Free(ArenaId(8)), Is("NOT_FOUND/ARENA_NOT_FOUND"));
  EXPECT_THAT(rig.session.arenas().TakeUnused(), IsEmpty());
}

TEST(SessionArenas, AFreedOneGoesWithItsSession) {
  SessionRig rig;
  rig.AddArena(7, 100);
  PostBatch batch = rig.Batch({{{ArenaId(7), 0, 8}}});
  const PostReply reply = rig.Post(batch);
  ASSERT_THAT(rig.session.arenas().Free(ArenaId(7)), Is("OK"));
  rig.End(batch, reply, 0);
  EXPECT_THAT(rig.session.arenas().TakeAll(), SizeIs(1));
  EXPECT_THAT(rig.session.arenas().TakeUnused(), IsEmpty());
}

TEST(SessionArenas, TheyAreListedById) {
  SessionRig rig;
  for (const uint64_t id : {9, 7, 8}) rig.AddArena(id, 10);
  std::vector<ArenaId> ids;
  for (const Arena* arena : rig.session.arenas().List()) ids.push_back(arena->id);
  EXPECT_THAT(ids, ElementsAre(ArenaId(7), ArenaId(8), ArenaId(9)));
  EXPECT_THAT(rig.session.arenas().TakeAll(), SizeIs(3));
  EXPECT_EQ(rig.session.use().arenas, 0u);
  EXPECT_EQ(rig.session.use().bytes, 0u);
  EXPECT_THAT(rig.session.arenas().List(), IsEmpty());
}

TEST(SessionEndings, GoodAndBadOnesAreCounted) {
  SessionRig rig;
  PostBatch batch = rig.Empty(4);
  const PostReply reply = rig.Post(batch);
  EXPECT_EQ(rig.session.use().transfers_in_flight, 4u);
  rig.End(batch, reply, 0);
  rig.End(batch, reply, 2, kPoison);
  rig.End(batch, reply, 1);
  EXPECT_EQ(rig.session.use().transfers_in_flight, 1u);
  EXPECT_EQ(rig.session.endings().transfers_ok(), 2u);
  EXPECT_EQ(rig.session.endings().transfers_failed(), 1u);
}

TEST(SessionEndings, TheWordIsTheLowWaterMarkAndTellsFailures) {
  SessionRig rig;
  PostBatch batch = rig.Empty(3);
  batch.over_timeline = 9;
  const PostReply reply = rig.Post(batch);
  rig.End(batch, reply, 1, kPoison);
  rig.session.timelines().Flush();
  EXPECT_EQ(rig.pages().over[9].value, 0u);
  rig.End(batch, reply, 0);
  rig.session.timelines().Flush();
  EXPECT_EQ(rig.pages().over[9].value, 2u);
  EXPECT_EQ(rig.pages().over[9].failures, 1u);
  EXPECT_EQ(rig.pages().over[9].first_failed, 2u);
  rig.End(batch, reply, 2);
  rig.session.timelines().Flush();
  EXPECT_EQ(rig.pages().over[9].value, 3u);
}

TEST(SessionEndings, FailuresAreKeptUntilThereAreTooMany) {
  SessionRig rig({{1000, 3, 10, 4096}, absl::Seconds(60), /*failures_kept=*/2});
  PostBatch batch = rig.Empty(6);
  const PostReply reply = rig.Post(batch);
  EXPECT_FALSE(rig.session.endings().FindFailure(1).has_value());
  // In another order than they were posted.
  for (const size_t i : {4, 0, 1}) rig.End(batch, reply, i, kPoison);
  rig.End(batch, reply, 2);
  EXPECT_EQ(rig.session.endings().forgotten_failures(), 5u);
  EXPECT_FALSE(rig.session.endings().FindFailure(5).has_value());
  ASSERT_TRUE(rig.session.endings().FindFailure(1).has_value());
  EXPECT_THAT(*rig.session.endings().FindFailure(1), Is("ABORTED/POISONED", "NaN"));
  EXPECT_TRUE(rig.session.endings().FindFailure(2).has_value());
  EXPECT_FALSE(rig.session.endings().FindFailure(3).has_value());  // it was good
  rig.End(batch, reply, 3, kPoison);
  EXPECT_FALSE(rig.session.endings().FindFailure(1).has_value());
  EXPECT_EQ(rig.session.endings().forgotten_failures(), 5u);  // never goes back
}

TEST(SessionEndings, IdsAreKnownOnceTheyAreGivenOut) {
  SessionRig rig;
  PostBatch batch = rig.Empty(2);
  EXPECT_FALSE(rig.session.IsKnown(1));
  rig.Post(batch);
  EXPECT_FALSE(rig.session.IsKnown(0));
  EXPECT_TRUE(rig.session.IsKnown(1));
  EXPECT_TRUE(rig.session.IsKnown(2));
  EXPECT_FALSE(rig.session.IsKnown(3));
}

TEST(SessionEndings, OfAClientThatIsGoneOnlyTheMemoryMatters) {
  SessionRig rig;
  Arena& arena = rig.AddArena(7, 100);
  PostBatch batch = rig.Batch({{{ArenaId(7), 0, 8}}});
  const PostReply reply = rig.Post(batch);
  rig.session.client_gone = true;
  rig.End(batch, reply, 0);
  rig.session.timelines().Flush();
  EXPECT_EQ(arena.transfers, 0u);
  EXPECT_EQ(rig.session.use().transfers_in_flight, 0u);
  EXPECT_EQ(rig.pages().over[0].value, 0u);
  EXPECT_EQ(rig.session.endings().next(), 1u);
}

TEST(SessionEvents, TheyTellEndingsInTheirOrder) {
  SessionRig rig;
  PostBatch batch = rig.Empty(3);
  const PostReply reply = rig.Post(batch);
  EXPECT_EQ(rig.session.endings().first(), 1u);
  EXPECT_EQ(rig.session.endings().next(), 1u);
  rig.End(batch, reply, 2, absl::OkStatus(), Route::kMapped);
  rig.End(batch, reply, 0, kPoison, Route::kUnspecified);
  ASSERT_EQ(rig.session.endings().next(), 3u);
  EXPECT_EQ(rig.session.endings().at(1).sequence, 3u);
  EXPECT_EQ(rig.session.endings().at(1).route, Route::kMapped);
  EXPECT_TRUE(rig.session.endings().at(1).ok);
  EXPECT_EQ(rig.session.endings().at(2).sequence, 1u);
  EXPECT_FALSE(rig.session.endings().at(2).ok);
}

TEST(SessionEvents, TheRingForgetsTheOldest) {
  constexpr size_t kAll = EndingLog::kEndingsKept + 5;
  SessionRig rig({{1000, 3, kAll, 4096}, absl::Seconds(60)});
  PostBatch batch = rig.Empty(kAll);
  const PostReply reply = rig.Post(batch);
  for (size_t i = 0; i < kAll; ++i) rig.End(batch, reply, i);
  EXPECT_EQ(rig.session.endings().next(), kAll + 1);
  EXPECT_EQ(rig.session.endings().first(), 6u);
  EXPECT_EQ(rig.session.endings().at(6).sequence, 6u);
  EXPECT_EQ(rig.session.endings().at(kAll).sequence, kAll);
}

TEST(SessionEvents, EveryWatcherIsToldUntilItIsRemoved) {
  SessionRig rig;
  int first = 0, second = 0;
  const uint64_t one = rig.session.endings().AddWatcher([&] { ++first; });
  const uint64_t two = rig.session.endings().AddWatcher([&] { ++second; });
  EXPECT_NE(one, two);
  rig.session.endings().NotifyWatchers();
  rig.session.endings().RemoveWatcher(one);
  rig.session.endings().RemoveWatcher(one);
  rig.session.endings().NotifyWatchers();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

}  // namespace
}  // namespace ferry
