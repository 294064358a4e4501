// SPDX-License-Identifier: Apache-2.0
// The prepared batches of one session, without the session.
#include "daemon/session/prepared_book.h"

#include <memory>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PreparedBookTest : public ::testing::Test {
 protected:
  // Prepares a batch of `count` transfers or jobs, the first of which is transfer `first`.
  uint32_t Add(uint64_t first, size_t count, Side side = Side::kSend) {
    PostBatch batch;
    batch.specs.resize(count);
    batch.side = side;
    batch.extents = {{ArenaId(1), 0, 8}, {ArenaId(2), 0, 8}};
    return book_.Add(*timelines_, TransferId(first), batch);
  }

  std::unique_ptr<TimelinePages> timelines_ = *TimelinePages::Create();
  PreparedBook book_;
};

TEST_F(PreparedBookTest, ANumberIsTakenUntilTheBatchIsReleasedAndOver) {
  EXPECT_EQ(Add(1, 2), 0u);
  EXPECT_EQ(Add(3, 1), 1u);
  book_.Find(0)->released = {7, 8};
  EXPECT_THAT(book_.TakeReleased().askers, IsEmpty());
  book_.OnEnded(0);
  book_.OnEnded(0);
  const PreparedBook::Released released = book_.TakeReleased();
  ASSERT_THAT(released.askers, SizeIs(1));
  EXPECT_EQ(released.askers[0].connection, 7u);
  EXPECT_EQ(released.askers[0].sequence, 8u);
  EXPECT_EQ(released.record_bytes, 2 * sizeof(Range));
  EXPECT_EQ(book_.Find(0), nullptr);
  EXPECT_EQ(Add(4, 1), 0u);
  EXPECT_EQ(Add(5, 1), 2u);
}

TEST_F(PreparedBookTest, OneThatAJobFiresStaysUntilThatIsOver) {
  const uint32_t number = Add(1, 1);
  PreparedRecord& record = *book_.Find(number);
  record.joined = true;
  record.released = {7, 8};
  book_.OnEnded(number);
  EXPECT_THAT(book_.TakeReleased().askers, IsEmpty());
  record.joined = false;
  EXPECT_THAT(book_.TakeReleased().askers, SizeIs(1));
}

TEST_F(PreparedBookTest, FiringsOfForgottenBatchesCount) {
  const uint32_t number = Add(1, 1);
  PreparedBatch& batch = *book_.Find(number)->batch;
  EXPECT_EQ(book_.armed(), 0u);
  batch.Arm();
  EXPECT_EQ(book_.armed(), 1u);
  batch.Over(1, 1);
  EXPECT_EQ(book_.firings(), 1u);
  book_.OnEnded(number);
  EXPECT_EQ(book_.armed(), 0u);
  book_.Find(number)->released = {7, 8};
  book_.TakeReleased();
  EXPECT_EQ(book_.firings(), 1u);
}

TEST_F(PreparedBookTest, IdleIsWhatNobodyFiresAndAJobTakesItsBatchesAlong) {
  const uint32_t send = Add(1, 1);
  const uint32_t receive = Add(2, 1, Side::kReceive);
  const uint32_t job = Add(3, 1);
  book_.Find(job)->fires = {send, receive};
  book_.Find(send)->joined = book_.Find(receive)->joined = true;
  Add(4, 1);
  std::vector<TransferId> idle;
  book_.ListIdle(idle);
  EXPECT_THAT(idle, ElementsAre(TransferId(1), TransferId(2), TransferId(3), TransferId(4)));
  book_.OnEnded(job);
  idle.clear();
  book_.ListIdle(idle);
  EXPECT_THAT(idle, ElementsAre(TransferId(4)));
}

TEST_F(PreparedBookTest, ItIsFullWith256) {
  for (uint64_t i = 0; i < FERRY_PREPARED_BATCHES; ++i) {
    EXPECT_FALSE(book_.full());
    Add(1 + i, 1);
  }
  EXPECT_TRUE(book_.full());
}

}  // namespace
}  // namespace ferry::testing
