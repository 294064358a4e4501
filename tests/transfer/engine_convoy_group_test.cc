// SPDX-License-Identifier: Apache-2.0
// Convoys in groups of NCCL: each is one chunk, and goes or ends as one.
#include "engine_convoys.h"

namespace ferry {
namespace {

using absl::StatusCode;
using testing::SizeIs;

// Batches that can go in groups of NCCL alone.
class EngineConvoyGroupTest : public EngineConvoyTest {
 protected:
  void SetUp() override {
    two_ = TwoDaemons({.order = {Route::kNccl}}, /*gpus=*/true);
    for (const int i : {kA, kB}) {
      RouteTable routes = Routes(false, false);
      routes[static_cast<size_t>(Route::kNccl)] = {true, ""};
      two_.engine(i).OnPeerUp(two_.now, PeerId(1 - i), routes, TwoDaemons::GpusOf(1 - i));
    }
    two_.Run();
  }
  void PostBoth(size_t first = 0) {
    for (const Side side : {Side::kReceive, Side::kSend}) {
      two_.PostBatch(Batch(side, kCount, first));
      two_.Run();
    }
    two_.Advance(absl::Milliseconds(10));  // the group has waited for company
  }
  void AnswerGroups(const absl::Status& status = absl::OkStatus()) {
    for (const int i : {kA, kB}) {
      for (const GroupLaunch& group : std::exchange(two_.daemons[i].groups, {})) {
        two_.engine(i).OnGroupDone(two_.now, group.ticket, status);
      }
    }
    two_.Run();
  }
};

TEST_F(EngineConvoyGroupTest, GoesInAGroupAsOneChunk) {
  PostBoth();
  for (const int i : {kA, kB}) {
    ASSERT_THAT(two_.daemons[i].groups, SizeIs(1));
    ASSERT_THAT(two_.daemons[i].groups[0].chunks, SizeIs(1));
    const GroupChunk& chunk = two_.daemons[i].groups[0].chunks[0];
    EXPECT_EQ(chunk.bytes, kCount * 4096);
    EXPECT_EQ(chunk.layout.block(3), (Range{ArenaId(i == kA ? 10 : 20), 3 * 8192, 4096}));
  }
  AnswerGroups();
  for (const int i : {kA, kB}) {
    EXPECT_THAT(two_.daemons[i].ended, SizeIs(1));
    EXPECT_EQ(Over(i), std::make_pair(kCount, kCount));
  }
}

TEST_F(EngineConvoyGroupTest, AGroupThatFailsEndsAll) {
  PostBoth();
  AnswerGroups(absl::InternalError("the lane failed"));
  for (const int i : {kA, kB}) EXPECT_EQ(Over(i), std::make_pair(kCount, size_t{0}));
  PostBoth(100);  // and the next ones have a communicator of their own
  AnswerGroups();
  for (const int i : {kA, kB}) EXPECT_EQ(Over(i), std::make_pair(2 * kCount, kCount));
}

// While its communicator is opened a convoy waits, matched: both ends may still want to end it.
TEST_F(EngineConvoyGroupTest, EndsBeforeItsGroupIfAllOfItIsCancelled) {
  for (const int node : {kA, kB}) {
    SetUp();
    two_.opens_well = false;
    PostBoth();
    const TransferId first = MakeTransferId(kSession, 0);
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(Over(kA), std::make_pair(size_t{0}, size_t{0})) << "a part of it does not end it";
      EXPECT_TRUE(two_.engine(node).Cancel(
          two_.now, Member(first, i),
          Error(StatusCode::kCancelled, Reason::kCancelled, "by the client")));
      two_.Run();
    }
    for (const int i : {kA, kB}) {
      EXPECT_EQ(Over(i), std::make_pair(kCount, size_t{0}));
      EXPECT_THAT(two_.daemons[i].ended[0].status,
                  Fails(StatusCode::kCancelled, Reason::kCancelled));
    }
    two_.opens_well = true;
  }
}

TEST_F(EngineConvoyGroupTest, EndsAtTheDeadlineOfEitherEnd) {
  for (const Side early : {Side::kSend, Side::kReceive}) {
    SetUp();
    two_.opens_well = false;
    for (const Side side : {Side::kReceive, Side::kSend}) {
      std::vector<TransferSpec> batch = Batch(side);
      for (TransferSpec& spec : batch) {
        spec.deadline = two_.now + absl::Milliseconds(side == early ? 500 : 20'000);
      }
      two_.PostBatch(batch);
      two_.Run();
    }
    two_.Advance(absl::Milliseconds(400));
    EXPECT_EQ(Over(kA), std::make_pair(size_t{0}, size_t{0}));
    two_.Advance(absl::Milliseconds(200));
    for (const int i : {kA, kB}) EXPECT_EQ(Over(i), std::make_pair(kCount, size_t{0}));
    two_.opens_well = true;
  }
}

TEST_F(EngineConvoyGroupTest, EndsWithTheSessionOfItsSender) {
  two_.opens_well = false;
  PostBoth();
  two_.a().EndSession(two_.now, kSession, "it was killed");
  two_.Run();
  for (const int i : {kA, kB}) EXPECT_EQ(Over(i), std::make_pair(kCount, size_t{0}));
}

}  // namespace
}  // namespace ferry
