// SPDX-License-Identifier: Apache-2.0
// One of two daemons drains: what has no partner ends at both, what has one goes on.
#include "tests/transfer/two_daemons.h"

namespace ferry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EngineDrainTest : public ::testing::Test {
 protected:
  void Drain(int node, absl::Duration left = absl::Seconds(118)) {
    two_.engine(node).SetDraining(two_.now, two_.now + left);
    two_.Run();
  }
  void Serve(int node) {
    two_.engine(node).SetDraining(two_.now, std::nullopt);
    two_.Run();
  }
  // How one has ended; OK, and a failure, if it has not.
  absl::Status StatusOf(int node, TransferId id) {
    for (const Ended& ended : two_.daemons[node].ended) {
      if (ended.transfer == id) return ended.status;
    }
    ADD_FAILURE() << "not over: " << id;
    return absl::OkStatus();
  }
  void ExpectDrained(int node, TransferId id, const std::string& who) {
    const absl::Status status = StatusOf(node, id);
    EXPECT_EQ(ReasonOf(status), Reason::kDraining) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(who + " drains, for at most 118 s more"),
                      HasSubstr("post again when it serves")));
  }

  TwoDaemons two_;
};

TEST_F(EngineDrainTest, WhoWaitsForAPeerThatDrainsIsToldAtOnce) {
  two_.LinkUp();
  const TransferId receive = two_.Receive("from a");
  const TransferId send = two_.Post(SpecOf(Side::kSend, "to a", 2, 0));
  two_.Run();
  Drain(kA);
  ExpectDrained(kB, receive, "node-a");
  ExpectDrained(kB, send, "node-a");
  EXPECT_EQ(two_.b().view().DrainsUntil(PeerId(kA)), two_.now + absl::Seconds(118));
  two_.ExpectNothingLeft();
}

TEST_F(EngineDrainTest, NewOnesAreToldAtOnceUntilItServesAgain) {
  two_.LinkUp();
  Drain(kA);
  const TransferId receive = two_.Receive("from a");
  const TransferId send = two_.Post(SpecOf(Side::kSend, "to a", 2, 0));
  two_.Run();
  ExpectDrained(kB, receive, "node-a");
  ExpectDrained(kB, send, "node-a");
  Serve(kA);
  EXPECT_EQ(two_.b().view().DrainsUntil(PeerId(kA)), std::nullopt);
  const TransferId again = two_.Receive("from a");
  const TransferId sent = two_.Send("from a");
  two_.Run();
  two_.Answer(kB);
  EXPECT_TRUE(StatusOf(kB, again).ok());
  EXPECT_TRUE(StatusOf(kA, sent).ok());
  two_.ExpectNothingLeft();
}

TEST_F(EngineDrainTest, PairsGoOnAlsoThoseWhoseHalvesCross) {
  two_.LinkUp();
  TransferSpec later = SpecOf(Side::kSend, "matched", 0, 2);
  later.defined = false;
  const TransferId matched = two_.Post(later);
  two_.Receive("matched");
  // It waits at a when that begins to drain, and its partner has been posted already.
  const TransferId crossing = two_.Post(SpecOf(Side::kReceive, "crossing", 2, 0));
  two_.Run();
  two_.Post(SpecOf(Side::kSend, "crossing", 2, 0));
  two_.a().SetDraining(two_.now, two_.now + absl::Seconds(118));
  two_.Run();
  two_.Answer(kA);
  EXPECT_TRUE(StatusOf(kA, crossing).ok());
  EXPECT_FALSE(two_.IsOver(kA, matched));
  two_.a().OnDefined(two_.now, matched);
  two_.Run();
  two_.Answer(kB);
  EXPECT_TRUE(StatusOf(kA, matched).ok());
  two_.ExpectNothingLeft();
}

TEST_F(EngineDrainTest, ALinkThatComesUpSaysIt) {
  const TransferId send = two_.Post(SpecOf(Side::kSend, "to a", 2, 0));
  const TransferId alone = two_.Receive("never sent");
  const TransferId receive = two_.Receive("sent before");
  two_.Send("sent before");
  two_.a().SetDraining(two_.now, two_.now + absl::Seconds(118));
  two_.LinkUp();
  ExpectDrained(kB, send, "node-a");
  ExpectDrained(kB, alone, "node-a");
  two_.Answer(kB);
  EXPECT_TRUE(StatusOf(kB, receive).ok()) << "it was offered first";
  two_.LinkLost();
  EXPECT_EQ(two_.b().view().DrainsUntil(PeerId(kA)), std::nullopt) << "nobody knows";
  two_.ExpectNothingLeft();
}

TEST_F(EngineDrainTest, WithoutADeadlineNoneIsNamed) {
  two_.LinkUp();
  const TransferId receive = two_.Receive();
  Drain(kA, absl::InfiniteDuration());
  EXPECT_THAT(std::string(StatusOf(kB, receive).message()),
              HasSubstr("node-a drains, and takes nothing new"));
}

// --- What continues something that is in flight, such as the chunks of a file.

class EngineDrainContinuesTest : public EngineDrainTest {
 protected:
  EngineDrainContinuesTest() {
    two_.LinkUp();
    TransferSpec spec = SpecOf(Side::kSend, "under way", 0, 2);
    spec.defined = false;
    at_a_ = two_.Post(spec);
    at_b_ = two_.Receive("under way");
    two_.Run();
  }
  TransferId PostPart(Side side, const std::string& key, uint64_t source, uint64_t destination) {
    TransferSpec spec = SpecOf(side, key, source, destination);
    spec.continues = (side == Side::kSend ? source : destination) < 2 ? at_a_ : at_b_;
    const TransferId posted = two_.Post(spec);
    two_.Run();
    return posted;
  }
  void EndWhatIsUnderWay() {
    two_.a().OnDefined(two_.now, at_a_);
    two_.Run();
    two_.Answer(kB);
    EXPECT_TRUE(StatusOf(kA, at_a_).ok());
    EXPECT_TRUE(StatusOf(kB, at_b_).ok());
  }

  TransferId at_a_, at_b_;  // both halves of what is continued
};

TEST_F(EngineDrainContinuesTest, ItsOtherHalvesMayComeWhoeverDrains) {
  const TransferId receive = PostPart(Side::kReceive, "before", 0, 2);
  const TransferId offered = PostPart(Side::kSend, "to a, before", 2, 0);
  Drain(kA);
  Drain(kB);
  const TransferId later = PostPart(Side::kReceive, "later", 0, 2);
  const TransferId offered_later = PostPart(Side::kSend, "to a, later", 2, 0);
  for (const TransferId id : {receive, offered, later, offered_later}) {
    EXPECT_FALSE(two_.IsOver(kB, id)) << id;
    EXPECT_TRUE(two_.b().view().Continues(id));
  }
  for (const char* key : {"before", "later"}) {
    const TransferId send = PostPart(Side::kSend, key, 0, 2);
    two_.Answer(kB);
    EXPECT_TRUE(StatusOf(kA, send).ok()) << key;
    const TransferId received = PostPart(Side::kReceive, std::string("to a, ") + key, 2, 0);
    two_.Answer(kA);
    EXPECT_TRUE(StatusOf(kA, received).ok()) << key;
  }
  EXPECT_TRUE(StatusOf(kB, later).ok());
  EXPECT_TRUE(StatusOf(kB, offered_later).ok());
  EndWhatIsUnderWay();
  two_.ExpectNothingLeft();
}

TEST_F(EngineDrainContinuesTest, OnceNothingIsInFlightWhereItDrainsNoneComes) {
  const TransferId receive = PostPart(Side::kReceive, "never", 0, 2);
  const TransferId offered = PostPart(Side::kSend, "to a, never", 2, 0);
  Drain(kA);
  EXPECT_FALSE(two_.IsOver(kB, receive));
  EXPECT_FALSE(two_.IsOver(kB, offered));
  EndWhatIsUnderWay();
  ExpectDrained(kB, receive, "node-a");
  ExpectDrained(kB, offered, "node-a");
  two_.ExpectNothingLeft();
}

TEST_F(EngineDrainContinuesTest, WhatContinuesSomethingThatIsOverIsAsAnyOther) {
  EndWhatIsUnderWay();
  const TransferId other = two_.Post(SpecOf(Side::kReceive, "keeps a busy", 3, 1));
  two_.Run();
  two_.Post(SpecOf(Side::kSend, "keeps a busy", 3, 1));
  two_.Run();
  Drain(kA);
  ExpectDrained(kB, PostPart(Side::kReceive, "from a", 0, 2), "node-a");
  EXPECT_FALSE(two_.b().view().IsInFlight(at_b_));
  EXPECT_TRUE(two_.a().view().IsInFlight(other));
}

TEST_F(EngineDrainContinuesTest, AtTheDeadlineOffersOfItAreRefused) {
  const TransferId offered = PostPart(Side::kSend, "to a", 2, 0);
  two_.a().SetDraining(two_.now, two_.now + absl::Seconds(1));
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kB, offered));
  const absl::Time deadline = two_.now + absl::Seconds(1);
  two_.Advance(absl::Seconds(1));
  two_.a().SetDraining(two_.now, deadline);  // as its owner does then
  two_.Run();
  EXPECT_EQ(ReasonOf(StatusOf(kB, offered)), Reason::kDraining);
  EXPECT_EQ(ReasonOf(StatusOf(kB, PostPart(Side::kSend, "to a, too late", 2, 0))),
            Reason::kDraining);
}

}  // namespace
}  // namespace ferry
