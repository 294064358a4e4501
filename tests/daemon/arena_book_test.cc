// SPDX-License-Identifier: Apache-2.0
// The arenas of one session, without the session: quota, pins, and arenas of jobs.
#include "daemon/session/arena_book.h"

#include <memory>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ArenaBookTest : public ::testing::Test {
 protected:
  Arena& Add(uint64_t id, uint64_t bytes) {
    EXPECT_THAT(book_.Reserve(bytes), Is("OK"));
    return book_.Add(Made(id, bytes));
  }
  Arena& AddAwaited(uint64_t id) {
    std::unique_ptr<Arena> arena = Made(id, 0);
    arena->of_job = arena->awaited = true;
    return book_.Add(std::move(arena));
  }
  static std::unique_ptr<Arena> Made(uint64_t id, uint64_t bytes) {
    auto arena = std::make_unique<Arena>();
    arena->id = ArenaId(id);
    arena->session = SessionId(5);
    arena->bytes = arena->held = bytes;
    return arena;
  }

  ArenaBook book_{SessionId(5), {.bytes = 1000, .arenas = 3}};
};

TEST_F(ArenaBookTest, TheQuotaIsOfWhatIsReservedNotOfWhatIsThere) {
  EXPECT_THAT(book_.Reserve(600, 2), Is("OK"));
  EXPECT_THAT(book_.List(), IsEmpty());
  EXPECT_THAT(book_.Reserve(401),
              Is("RESOURCE_EXHAUSTED/QUOTA_BYTES", "session 5 holds 600 of 1000 bytes"));
  EXPECT_THAT(book_.Reserve(1, 2),
              Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS", "session 5 has 2 of 3 arenas"));
  book_.Unreserve(600, 2);
  EXPECT_EQ(book_.use().bytes, 0u);
  EXPECT_EQ(book_.use().arenas, 0u);
}

TEST_F(ArenaBookTest, ALayoutPinsEachOfItsArenasOnce) {
  const Arena& seven = Add(7, 100);
  const Arena& eight = Add(8, 100);
  const Layout layout(
      {{ArenaId(7), 0, 8}, {ArenaId(8), 0, 8}, {ArenaId(7), 16, 8}, {ArenaId(8), 16, 8}});
  book_.Pin(layout);
  book_.Pin(layout);
  EXPECT_EQ(seven.transfers, 2u);
  EXPECT_EQ(eight.transfers, 2u);
  EXPECT_THAT(book_.Take(ArenaId(7)),
              Is("FAILED_PRECONDITION/FIELD_INVALID", "2 transfers use it"));
  book_.Unpin(layout, 2);
  EXPECT_EQ(seven.transfers, 0u);
  EXPECT_THAT(book_.Take(ArenaId(7)), Is("OK"));
  EXPECT_EQ(book_.use().bytes, 100u);
}

TEST_F(ArenaBookTest, AFreedArenaThatIsUsedCountsUntilItIsTaken) {
  Add(7, 100);
  const Layout layout({{ArenaId(7), 0, 8}});
  book_.Pin(layout);
  const absl::StatusOr<std::unique_ptr<Arena>> freed = book_.Free(ArenaId(7));
  ASSERT_THAT(freed, Is("OK"));
  EXPECT_EQ(*freed, nullptr);
  EXPECT_THAT(book_.Find(ArenaId(7)), Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(book_.TakeUnused(), IsEmpty());
  book_.Unpin(layout, 1);
  EXPECT_EQ(book_.use().arenas, 1u);
  EXPECT_THAT(book_.TakeUnused(), SizeIs(1));
  EXPECT_EQ(book_.use().arenas, 0u);
  EXPECT_THAT(book_.TakeUnused(), IsEmpty());
}

TEST_F(ArenaBookTest, WhatAJobAwaitsCountsNowhere) {
  Arena& arena = AddAwaited(9);
  EXPECT_EQ(book_.use().arenas, 0u);
  EXPECT_THAT(book_.List(), IsEmpty());
  EXPECT_THAT(book_.Find(ArenaId(9)), Is("NOT_FOUND/ARENA_NOT_FOUND")) << "no client names it";
  ASSERT_THAT(book_.Reserve(300), Is("OK"));
  book_.CountOfJob(arena, 300);
  EXPECT_THAT(book_.List(), ElementsAre(&arena));
  EXPECT_EQ(book_.use_of_jobs().bytes, 300u);
  EXPECT_EQ(book_.use_of_jobs().arenas, 1u);
  AddAwaited(10);
  EXPECT_EQ(book_.TakeOfJob(ArenaId(10))->id, ArenaId(10));
  EXPECT_EQ(book_.use().bytes, 300u) << "it had nothing to give back";
  EXPECT_EQ(book_.TakeOfJob(ArenaId(9))->id, ArenaId(9));
  EXPECT_EQ(book_.use().bytes, 0u);
  EXPECT_EQ(book_.use_of_jobs().bytes, 0u);
  EXPECT_EQ(book_.use_of_jobs().arenas, 0u);
}

TEST_F(ArenaBookTest, AllAreTakenAtTheEndUsedOrNot) {
  Add(7, 100);
  Add(8, 100);
  AddAwaited(9);
  book_.Pin(Layout({{ArenaId(7), 0, 8}}));
  EXPECT_THAT(book_.TakeAll(), SizeIs(3));
  EXPECT_EQ(book_.use().bytes, 0u);
  EXPECT_THAT(book_.List(), IsEmpty());
}

}  // namespace
}  // namespace ferry::testing
