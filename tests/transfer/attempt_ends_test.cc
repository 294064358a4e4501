// SPDX-License-Identifier: Apache-2.0
// AttemptEnds with the books that it reads, at either end of the clique of devices 0 and 2: node-a
// owns 0 and leads, node-b owns 2.
#include "transfer/clique/attempt_ends.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/reason.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transfer/deadlines.h"
#include "transfer/outbox.h"
#include "transfer/route_choice.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr PeerId kLeaderEnd(0), kFollowerEnd(1);
constexpr Clique kEnded{GlobalDeviceId(0), GlobalDeviceId(2)};

class AttemptEndsTest : public testing::Test {
 protected:
  explicit AttemptEndsTest(PeerId self = kLeaderEnd)
      : devices_{
            self, {{kEnded.low, kLeaderEnd}, {kEnded.high, kFollowerEnd}}, {"node-a", "node-b"}} {
    routes_.AddPeer();
    routes_.AddPeer();
    RouteTable table(kRoutes);
    table[static_cast<size_t>(Route::kNccl)].available = true;
    routes_.OnPeerUp(Other(), std::move(table), {});
  }
  PeerId Other() const { return devices_.self == kLeaderEnd ? kFollowerEnd : kLeaderEnd; }

  // Attempt 1 is in use, and nothing is on it.
  virtual void Open() {
    leader_.Warm(kEnded);
    for (const auto& [clique, attempt] : leader_.TakeDue(now_).open) {
      EXPECT_EQ(attempt, 1u);
      comms_.Open(clique, attempt);
      comms_.OnOpened(clique, attempt);
    }
    out_ = Outbox();
  }
  // A group of attempt 1 that has our lane, or has only asked for it.
  GroupRecord& Add(uint64_t number, bool launched = true) {
    GroupRecord& group = groups_.Add(kEnded, Other(), devices_.self == kLeaderEnd);
    group.attempt = 1;
    group.number = number;
    groups_.Ask(group);
    groups_.TakeGranted();
    if (launched) groups_.Launch(group);
    return group;
  }
  // The orders, and the messages, of a kind; the others are dropped.
  template <typename Order>
  std::vector<Order> Take() {
    std::vector<Order> taken;
    for (GroupOrder& order : std::exchange(out_.groups, {})) {
      if (Order* const wanted = std::get_if<Order>(&order)) taken.push_back(std::move(*wanted));
    }
    return taken;
  }
  template <typename Message>
  std::vector<Message> Said() {
    std::vector<Message> said;
    for (auto& [peer, message] : std::exchange(out_.messages, {})) {
      EXPECT_EQ(peer, Other());
      if (Message* const wanted = std::get_if<Message>(&message)) said.push_back(*wanted);
    }
    return said;
  }

  const DeviceMap devices_;
  const DeviceOwners owners_{devices_.owner};
  const CliqueOptions options_ = {};
  const absl::Duration group_time_ = absl::Milliseconds(2);
  absl::Time now_ = absl::UnixEpoch() + absl::Seconds(100);
  Outbox out_;
  RouteChoice routes_{devices_, owners_, {Route::kNccl}, false, [this](const Clique& clique) {
                        return std::as_const(comms_).Find(clique);
                      }};
  const CliqueContext context_{devices_, owners_, routes_, options_, group_time_, now_, out_};
  GroupLeader leader_{options_.cutting};
  CommBook comms_{context_, leader_};
  GroupBook groups_{context_};
  std::vector<std::pair<uint64_t, absl::Status>> dropped_;  // by number
  std::vector<absl::Status> unavailable_;
  AttemptEnds ends_{context_,
                    leader_,
                    comms_,
                    groups_,
                    {.drop_group =
                         [this](uint64_t id, const absl::Status& why) {
                           dropped_.emplace_back(groups_.Find(id)->number, why);
                           groups_.Erase(id);
                         },
                     .unavailable =
                         [this](const Clique& clique, const absl::Status& why) {
                           EXPECT_EQ(clique, kEnded);
                           unavailable_.push_back(why);
                         }}};
};

TEST_F(AttemptEndsTest, AFailedGroupEndsAllThatIsOnItsAttempt) {
  Open();
  GroupRecord& failed = Add(1);
  GroupRecord& beside = Add(2);
  Add(3, /*launched=*/false);
  ends_.Fail(kEnded, 1, 1, absl::InternalError("the lane failed"));
  const std::vector<AttemptOver> over = Said<AttemptOver>();
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_EQ(over[0].attempt, 1u);
  EXPECT_EQ(over[0].number, 1u);
  EXPECT_THAT(over[0].status.message(), HasSubstr("the lane failed"));
  const std::vector<CommunicatorEnd> ended = Take<CommunicatorEnd>();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].attempt, 1u);
  EXPECT_EQ(failed.why.message(), "the lane failed");
  EXPECT_EQ(ReasonOf(beside.why), Reason::kCommAborted);
  EXPECT_THAT(beside.why.message(), HasSubstr("the lane failed"));
  ASSERT_THAT(dropped_, SizeIs(1));
  EXPECT_EQ(dropped_[0].first, 3u);
  EXPECT_EQ(ReasonOf(dropped_[0].second), Reason::kCommAborted);
  EXPECT_THAT(unavailable_, IsEmpty());
  EXPECT_EQ(groups_.NextTimer(), Deadlines::kNever);  // what is aborted is not late
  // It ends once.
  ends_.Fail(kEnded, 1, 2, absl::InternalError("the other one too"));
  EXPECT_THAT(out_.messages, IsEmpty());
  EXPECT_THAT(out_.groups, IsEmpty());
  EXPECT_EQ(failed.why.message(), "the lane failed");
}

TEST_F(AttemptEndsTest, AnOpeningThatTakesTooLongIsUnavailable) {
  leader_.Warm(kEnded);
  for (const auto& [clique, attempt] : leader_.TakeDue(now_).open) comms_.Open(clique, attempt);
  EXPECT_FALSE(ends_.OnTime());
  now_ += options_.open_deadline;
  EXPECT_TRUE(ends_.OnTime());
  EXPECT_FALSE(ends_.OnTime());
  ASSERT_THAT(unavailable_, SizeIs(1));
  EXPECT_EQ(ReasonOf(unavailable_[0]), Reason::kRouteUnavailable);
  EXPECT_THAT(unavailable_[0].message(), HasSubstr("not open within"));
  EXPECT_THAT(Said<AttemptOver>(), SizeIs(1));
  EXPECT_THAT(Take<CommunicatorEnd>(), SizeIs(1));
}

TEST_F(AttemptEndsTest, ALaunchedGroupOfTheLeaderIsLateTwiceOrAtBothEnds) {
  Open();
  GroupRecord& group = Add(1);
  now_ += options_.group_deadline;
  EXPECT_TRUE(ends_.OnTime());  // perhaps it waits for another one at the follower
  EXPECT_TRUE(group.late);
  EXPECT_TRUE(group.why.ok());
  EXPECT_THAT(out_.messages, IsEmpty());
  now_ += options_.group_deadline;
  EXPECT_TRUE(ends_.OnTime());
  EXPECT_EQ(ReasonOf(group.why), Reason::kExecuting);
  EXPECT_THAT(group.why.message(), HasSubstr("group 1 of the clique of devices 0 and 2: not over"));
  EXPECT_THAT(Said<AttemptOver>(), SizeIs(1));
}

TEST_F(AttemptEndsTest, AGroupThatIsLateAtTheFollowerFirstIsLateHereOnce) {
  Open();
  GroupRecord& group = Add(1);
  const absl::Status late = Error(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting, "late");
  EXPECT_TRUE(ends_.OnGroupFailed(kFollowerEnd, {kEnded, 1, 1, late}));
  EXPECT_TRUE(group.late_there);
  EXPECT_TRUE(group.why.ok());
  EXPECT_THAT(out_.messages, IsEmpty());
  now_ += options_.group_deadline;
  EXPECT_TRUE(ends_.OnTime());
  EXPECT_EQ(ReasonOf(group.why), Reason::kExecuting);
}

TEST_F(AttemptEndsTest, AGroupThatHasEndedHereIsEndedWhereItIsStillLate) {
  Open();
  const uint64_t id = Add(1).id;
  const absl::Status late = Error(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting, "late");
  EXPECT_TRUE(ends_.OnGroupFailed(kFollowerEnd, {kEnded, 1, 1, late}));
  groups_.Erase(id);
  EXPECT_TRUE(ends_.OnGroupFailed(kFollowerEnd, {kEnded, 1, 1, late}));
  EXPECT_THAT(Said<AttemptOver>(), SizeIs(1));
}

TEST_F(AttemptEndsTest, TheLeaderEndsWhatTheFollowerSaysHasFailed) {
  Open();
  GroupRecord& group = Add(1);
  const absl::Status why = absl::InternalError("their lane failed");
  EXPECT_FALSE(ends_.OnGroupFailed(kFollowerEnd, {kEnded, 1, 1, absl::OkStatus()}));
  EXPECT_FALSE(ends_.OnGroupFailed(kLeaderEnd, {kEnded, 1, 1, why}));    // not the follower
  EXPECT_FALSE(ends_.OnGroupFailed(kFollowerEnd, {kEnded, 2, 1, why}));  // not in use
  EXPECT_TRUE(group.why.ok());
  EXPECT_TRUE(ends_.OnGroupFailed(kFollowerEnd, {kEnded, 1, 1, why}));
  EXPECT_EQ(group.why.message(), "their lane failed");
  EXPECT_THAT(Said<AttemptOver>(), SizeIs(1));
  EXPECT_THAT(Take<CommunicatorEnd>(), SizeIs(1));
  EXPECT_FALSE(ends_.OnGroupFailed(kFollowerEnd, {kEnded, 1, 1, why}));  // it has ended already
}

TEST_F(AttemptEndsTest, AnIdleCommunicatorIsClosedWhenTheFollowerHasClosedIt) {
  ends_.EvictCommunicator(kEnded, /*busy=*/false);  // there is none
  EXPECT_THAT(out_.messages, IsEmpty());
  Open();
  ends_.EvictCommunicator(kEnded, /*busy=*/false);
  const std::vector<AttemptOver> over = Said<AttemptOver>();
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].status.ok());
  EXPECT_THAT(Take<CommunicatorClosing>(), SizeIs(1));
  EXPECT_FALSE(ends_.OnAttemptOver(kFollowerEnd, {kEnded, 1, 0, absl::InternalError("no")}));
  EXPECT_FALSE(ends_.OnAttemptOver(kFollowerEnd, {kEnded, 2, 0, absl::OkStatus()}));
  EXPECT_TRUE(ends_.OnAttemptOver(kFollowerEnd, {kEnded, 1, 0, absl::OkStatus()}));
  const std::vector<CommunicatorEnd> ended = Take<CommunicatorEnd>();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_TRUE(ended[0].status.ok());
  EXPECT_FALSE(ends_.OnAttemptOver(kFollowerEnd, {kEnded, 1, 0, absl::OkStatus()}));
}

TEST_F(AttemptEndsTest, OnlyTheFollowerMayAskTheLeaderForAnEviction) {
  Open();
  EXPECT_FALSE(ends_.OnEvict(kLeaderEnd, {kEnded, 1, false}));
  EXPECT_TRUE(ends_.OnEvict(kFollowerEnd, {kEnded, 2, false}));  // of one that is over: no effect
  EXPECT_THAT(out_.messages, IsEmpty());
  EXPECT_TRUE(ends_.OnEvict(kFollowerEnd, {kEnded, 1, false}));
  EXPECT_THAT(Said<AttemptOver>(), SizeIs(1));
}

TEST_F(AttemptEndsTest, ACommunicatorThatFailsIsAbortedUnlessItIsOver) {
  Open();
  GroupRecord& group = Add(1);
  ends_.OnCommunicatorFailed(kEnded, 2, absl::InternalError("of another attempt"));
  EXPECT_THAT(out_.messages, IsEmpty());
  ends_.OnCommunicatorFailed(kEnded, 1, absl::InternalError("the wire is cut"));
  EXPECT_EQ(ReasonOf(group.why), Reason::kCommAborted);
  EXPECT_THAT(group.why.message(), HasSubstr("the wire is cut"));
  EXPECT_THAT(Said<AttemptOver>(), SizeIs(1));
  EXPECT_THAT(Take<CommunicatorEnd>(), SizeIs(1));
}

class AttemptEndsFollowerTest : public AttemptEndsTest {
 protected:
  AttemptEndsFollowerTest() : AttemptEndsTest(kFollowerEnd) {}
  void Open() override {
    EXPECT_TRUE(comms_.OnOpenComm(kLeaderEnd, {kEnded, 1, "id"}));
    comms_.OnOpened(kEnded, 1);
    out_ = Outbox();
  }
};

TEST_F(AttemptEndsFollowerTest, SaysWhatItSeesAndWaitsForTheLeadersWord) {
  Open();
  GroupRecord& group = Add(1);
  ends_.Fail(kEnded, 1, 1, absl::InternalError("the lane failed"));
  const std::vector<GroupFailed> failed = Said<GroupFailed>();
  ASSERT_THAT(failed, SizeIs(1));
  EXPECT_EQ(failed[0].number, 1u);
  EXPECT_THAT(out_.groups, IsEmpty());
  EXPECT_TRUE(group.why.ok());
  EXPECT_TRUE(ends_.OnAttemptOver(kLeaderEnd, {kEnded, 1, 1, failed[0].status}));
  EXPECT_EQ(group.why.message(), "the lane failed");
  EXPECT_THAT(Take<CommunicatorEnd>(), SizeIs(1));
  EXPECT_THAT(out_.messages, IsEmpty());  // an abort needs no answer
  EXPECT_FALSE(ends_.OnAttemptOver(kLeaderEnd, {kEnded, 1, 1, failed[0].status}));
}

// The leader's half may end well after it was told.
TEST_F(AttemptEndsFollowerTest, SaysThatAGroupIsLateAgainAndAgain) {
  Open();
  GroupRecord& group = Add(1);
  for (int time = 0; time < 3; ++time) {
    now_ += options_.group_deadline;
    EXPECT_TRUE(ends_.OnTime());
    EXPECT_FALSE(ends_.OnTime());
    const std::vector<GroupFailed> failed = Said<GroupFailed>();
    ASSERT_THAT(failed, SizeIs(1));
    EXPECT_EQ(failed[0].number, 1u);
    EXPECT_EQ(ReasonOf(failed[0].status), Reason::kExecuting);
    EXPECT_TRUE(group.why.ok());
  }
  EXPECT_TRUE(ends_.OnAttemptOver(kLeaderEnd, {kEnded, 1, 1, absl::InternalError("it is over")}));
  EXPECT_EQ(groups_.NextTimer(), Deadlines::kNever);
}

TEST_F(AttemptEndsFollowerTest, ClosesWhenNoGroupIsOnTheAttempt) {
  Open();
  const uint64_t id = Add(1).id;
  EXPECT_TRUE(ends_.OnAttemptOver(kLeaderEnd, {kEnded, 1, 0, absl::OkStatus()}));
  EXPECT_THAT(Take<CommunicatorClosing>(), SizeIs(1));
  ends_.CloseQuiet(kEnded);
  EXPECT_THAT(out_.messages, IsEmpty());
  groups_.Erase(id);
  ends_.CloseQuiet(kEnded);
  const std::vector<AttemptOver> over = Said<AttemptOver>();
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].status.ok());
  const std::vector<CommunicatorEnd> ended = Take<CommunicatorEnd>();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_TRUE(ended[0].status.ok());
  ends_.CloseQuiet(kEnded);
  EXPECT_THAT(out_.messages, IsEmpty());
}

TEST_F(AttemptEndsFollowerTest, AnswersAtOnceWhatIsNotHere) {
  EXPECT_FALSE(ends_.OnAttemptOver(kFollowerEnd, {kEnded, 1, 0, absl::OkStatus()}));
  EXPECT_THAT(out_.messages, IsEmpty());
  EXPECT_TRUE(ends_.OnAttemptOver(kLeaderEnd, {kEnded, 1, 0, absl::OkStatus()}));
  EXPECT_THAT(Said<AttemptOver>(), SizeIs(1));
  EXPECT_THAT(out_.groups, IsEmpty());
}

TEST_F(AttemptEndsFollowerTest, AsksTheLeaderForAnEviction) {
  Open();
  EXPECT_FALSE(ends_.OnEvict(kLeaderEnd, {kEnded, 1, false}));  // we do not lead
  const uint64_t id = Add(1).id;
  ends_.EvictCommunicator(kEnded, /*busy=*/false);
  EXPECT_THAT(Said<Evict>(), IsEmpty());
  ends_.EvictCommunicator(kEnded, /*busy=*/true);
  const std::vector<Evict> busy = Said<Evict>();
  ASSERT_THAT(busy, SizeIs(1));
  EXPECT_TRUE(busy[0].busy);
  groups_.Erase(id);
  ends_.EvictCommunicator(kEnded, /*busy=*/false);
  EXPECT_THAT(Said<Evict>(), SizeIs(1));
}

TEST_F(AttemptEndsFollowerTest, AGroupWithoutTheOtherLaneIsDropped) {
  Open();
  Add(1, /*launched=*/false);
  EXPECT_TRUE(ends_.OnAttemptOver(kLeaderEnd, {kEnded, 1, 1, absl::InternalError("no lane")}));
  ASSERT_THAT(dropped_, ElementsAre(testing::Pair(1, absl::InternalError("no lane"))));
  EXPECT_EQ(groups_.size(), 0u);
}

}  // namespace
}  // namespace ferry
