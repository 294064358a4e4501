// SPDX-License-Identifier: Apache-2.0
// A half that has ended without a partner leaves a tombstone for it.
#include "two_daemons.h"

namespace ferry {
namespace {

using absl::Seconds;
using absl::StatusCode;

class EngineTombstoneTest : public testing::Test {
 protected:
  TransferSpec Timed(Side side, uint64_t source = 0, uint64_t destination = 2) {
    TransferSpec spec = SpecOf(side, "k", source, destination);
    spec.deadline = two_.now + Seconds(60);
    return spec;
  }
  TwoDaemons two_;
};

TEST_F(EngineTombstoneTest, WhoComesWhenItsPartnerHasEndedIsToldAtOnceHow) {
  two_.LinkUp();
  const auto ends = [&](int at, TransferId id, absl::Status (*why)()) {
    return [this, at, id, why] { two_.engine(at).Cancel(two_.now, id, why()); };
  };
  for (const Side first : {Side::kSend, Side::kReceive}) {
    const int here = first == Side::kSend ? kA : kB;
    const int there = first == Side::kSend ? kB : kA;
    const Side second = first == Side::kSend ? Side::kReceive : Side::kSend;
    for (absl::Status (*why)() : {Cancelled, Poisoned}) {
      const TransferId id = two_.Post(Timed(first));
      two_.Run();
      ends(here, id, why)();
      two_.Run();
      two_.Advance(Seconds(3));
      const TransferId late = two_.Post(Timed(second));
      two_.Run();
      ASSERT_TRUE(two_.IsOver(there, late));
      EXPECT_THAT(two_.StatusOf(there, late), Fails(why().code(), ReasonOf(why())));
      EXPECT_THAT(two_.StatusOf(there, late), Says("ended 3 s before this"));
      EXPECT_THAT(two_.StatusOf(there, late),
                  Says(first == Side::kSend ? "node-a (device 0)" : "node-b (device 2)"));
      two_.ExpectNothingLeft();
    }
  }
}

TEST_F(EngineTombstoneTest, AReceiveThatTimedOutIsToldToTheSend) {
  two_.LinkUp();
  two_.Post(Timed(Side::kReceive));
  two_.Advance(Seconds(1));
  two_.Advance(Seconds(59));
  const TransferId late = two_.Post(Timed(Side::kSend));
  two_.Run();
  EXPECT_THAT(two_.StatusOf(kA, late),
              Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  two_.Post(Timed(Side::kReceive));
  two_.b().EndSession(two_.now, kSession, "killed");
  two_.Run();
  const TransferId waits = two_.Post(Timed(Side::kSend));
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kA, waits)) << "for the next life of the client";
}

// The successor of a cancelled send is on its way when the receive is posted.
TEST_F(EngineTombstoneTest, ASuccessorThatWasPostedBeforeAndComesLaterIsMatched) {
  two_.LinkUp();
  two_.a().Cancel(two_.now, two_.Send(), Cancelled());
  two_.Run();
  const TransferId from = two_.Send();  // its offer is not heard yet
  const TransferId to = two_.Receive();
  two_.Take(kB);
  EXPECT_FALSE(two_.IsOver(kB, to));
  two_.Run();
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
}

TEST_F(EngineTombstoneTest, WithinADaemonToo) {
  for (const Side first : {Side::kSend, Side::kReceive}) {
    const TransferId id = two_.Post(Timed(first, 0, 1));
    two_.a().Cancel(two_.now, id, Cancelled());
    const TransferId late =
        two_.Post(Timed(first == Side::kSend ? Side::kReceive : Side::kSend, 0, 1));
    two_.Take(kA);
    EXPECT_THAT(two_.StatusOf(kA, late), Fails(StatusCode::kCancelled, Reason::kCancelled));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineTombstoneTest, OneIsToldAndTheNextOneWaits) {
  two_.LinkUp();
  two_.b().Cancel(two_.now, two_.Receive(), Cancelled());
  const TransferId told = two_.Send();
  two_.Run();
  EXPECT_TRUE(two_.IsOver(kA, told));
  const TransferId waits = two_.Send();
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kA, waits));
}

TEST_F(EngineTombstoneTest, ASuccessorIsMatchedAsIfNothingHadBeen) {
  two_.LinkUp();
  for (const Side first : {Side::kSend, Side::kReceive}) {
    const int here = first == Side::kSend ? kA : kB;
    two_.engine(here).Cancel(two_.now, two_.Post(Timed(first)), Cancelled());
    two_.Run();
    const TransferId from = two_.Post(Timed(first));
    two_.Run();
    const TransferId to = two_.Post(Timed(first == Side::kSend ? Side::kReceive : Side::kSend));
    two_.Run();
    two_.Answer(kB);
    EXPECT_TRUE(two_.StatusOf(here, from).ok());
    EXPECT_TRUE(two_.StatusOf(here == kA ? kB : kA, to).ok());
  }
}

TEST_F(EngineTombstoneTest, ALostLinkAndTenMinutesForgetWhoHasEnded) {
  two_.LinkUp();
  two_.b().Cancel(two_.now, two_.Receive(), Cancelled());
  two_.Run();
  two_.LinkLost();
  two_.LinkUp();
  TransferId late = two_.Send();
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kA, late));
  two_.a().Cancel(two_.now, late, Cancelled());
  two_.Run();
  two_.Advance(Tombstones::kLife);
  late = two_.Receive();
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kB, late));
}

}  // namespace
}  // namespace ferry
