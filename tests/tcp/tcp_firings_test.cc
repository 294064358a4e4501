// SPDX-License-Identifier: Apache-2.0
// TcpFirings: what one end says of firings, and what it takes of what the other one says.
#include "transfer/tcp/tcp_firings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/contract/prepared_client.h"
#include "tests/tcp/made_ops.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// One end's classes, without a set of connections: what is to be said or sent waits for one.
class TcpFiringsTest : public ::testing::Test {
 protected:
  ~TcpFiringsTest() override {
    OnLane([this] { ops_.EndAll(link_, absl::OkStatus()); });
  }
  void OnLane(const std::function<void()>& what) { lane_.RunAndWait(what); }
  // Joins a transfer of a batch of its own.
  TcpOp& Join(LaunchRole role, size_t bytes) {
    TcpOp* const op = ops_.Add(MadePrepared(role, 7, memory_, bytes, client_.Prepare(1)), link_);
    EXPECT_NE(op, nullptr);
    firings_.Join(*op);
    return *op;
  }
  // Takes out what is to be said: the kind, the tag and the firing of each.
  std::vector<std::tuple<TcpKind, uint64_t, uint64_t>> Said() {
    std::vector<std::tuple<TcpKind, uint64_t, uint64_t>> said;
    for (const auto& [kind, entry] : std::exchange(link_.said, {})) {
      said.emplace_back(kind, entry.tag, entry.at);
    }
    return said;
  }
  bool Queued() const { return !link_.queues[1].empty(); }
  // All bytes of the firing are in messages, and written.
  void WriteAll(TcpOp& send) {
    link_.queues[1].Serve(send.bytes());
    send.cut = send.over = send.bytes();
  }
  void ExpectProtocolError() {
    ops_.Answer();
    ASSERT_THAT(answers_, SizeIs(1));
    EXPECT_EQ(ReasonOf(answers_[0].status), Reason::kProtocolError) << answers_[0].status;
    EXPECT_EQ(bundles_.size(), 0u);
  }

  std::byte memory_[64];
  PreparedClient client_;  // first: it outlives the bundles
  Lane lane_{"lane", absl::ZeroDuration()};
  std::vector<OpResult> answers_;
  TcpDeviceLink link_;
  DueConnections due_;
  TcpStaging staging_{nullptr};
  TcpBundles bundles_{lane_};
  TcpOps ops_{[this](std::vector<OpResult> results) {
                for (OpResult& result : results) answers_.push_back(std::move(result));
              },
              bundles_, staging_};
  TcpSets sets_{GlobalDeviceId(0), {}, nullptr, ops_, staging_, due_};
  TcpSends sends_{ops_, staging_, sets_, due_};
  TcpFirings firings_{bundles_, ops_, sends_};
};

TEST_F(TcpFiringsTest, AReceiveAsksForAFiringWhenBothEndsAreThereAndItWantsIt) {
  for (const bool announced_first : {false, true}) {
    OnLane([&] {
      TcpOp& receive = Join(LaunchRole::kReceive, 8);
      const uint32_t number = announced_first;  // of the batch
      EXPECT_THAT(Said(), IsEmpty()) << "only sends announce themselves";
      EXPECT_FALSE(firings_.Poll());
      if (announced_first) firings_.OnArmed(receive);
      EXPECT_THAT(Said(), IsEmpty());
      client_.Fire(number, 1);
      EXPECT_TRUE(firings_.Poll());
      if (!announced_first) {
        EXPECT_THAT(Said(), IsEmpty());
        firings_.OnArmed(receive);
      }
      EXPECT_THAT(Said(), ElementsAre(std::tuple(TcpKind::kWanted, 7, 1)));
      EXPECT_FALSE(firings_.Poll()) << "the firing has begun";
      firings_.Over(receive);
      EXPECT_THAT(Said(), ElementsAre(std::tuple(TcpKind::kArrived, 7, 1)));
      EXPECT_EQ(client_.Over(number), 1u);
      ops_.End(receive, absl::OkStatus());
    });
  }
}

TEST_F(TcpFiringsTest, ASendIsSentWhenBothEndsWantTheFiringWhoeverIsFirst) {
  OnLane([&] {
    TcpOp& send = Join(LaunchRole::kSend, 8);
    EXPECT_THAT(Said(), ElementsAre(std::tuple(TcpKind::kArmed, 7, 0)));
    for (uint64_t n = 1; n <= 4; ++n) {
      SCOPED_TRACE(n);
      if (n % 2 == 0) firings_.OnWanted(send, n);
      EXPECT_FALSE(firings_.Poll());
      EXPECT_FALSE(Queued());
      client_.Fire(0, n);
      EXPECT_TRUE(firings_.Poll());
      if (n % 2 == 1) {
        EXPECT_FALSE(Queued());
        firings_.OnWanted(send, n);
      }
      EXPECT_TRUE(Queued());
      WriteAll(send);
      EXPECT_EQ(client_.Over(0), n - 1) << "the other end has yet to say that it has arrived";
      firings_.OnArrived(send, n);
      EXPECT_EQ(client_.Over(0), n);
    }
    EXPECT_THAT(Said(), IsEmpty());
    EXPECT_FALSE(ops_.has_answers()) << "a prepared transfer lasts until it is aborted";
  });
}

TEST_F(TcpFiringsTest, AFiringWithoutBytesIsSaid) {
  OnLane([&] {
    TcpOp& send = Join(LaunchRole::kSend, 0);
    Said();
    client_.Fire(0, 1);
    EXPECT_TRUE(firings_.Poll());
    firings_.OnWanted(send, 1);
    EXPECT_FALSE(Queued());
    EXPECT_THAT(Said(), ElementsAre(std::tuple(TcpKind::kBytes, 7, 0)));
    firings_.OnArrived(send, 1);
    EXPECT_EQ(client_.Over(0), 1u);
  });
}

TEST_F(TcpFiringsTest, ASecondAnnouncementIsNothing) {
  OnLane([&] {
    TcpOp& receive = Join(LaunchRole::kReceive, 8);
    client_.Fire(0, 1);
    firings_.Poll();
    firings_.OnArmed(receive);
    firings_.OnArmed(receive);
    EXPECT_THAT(Said(), SizeIs(1));
  });
}

TEST_F(TcpFiringsTest, ASendEndsWhoseOtherEndWantsAFiringThatIsNotTheNextOne) {
  OnLane([&] {
    firings_.OnWanted(Join(LaunchRole::kSend, 8), 2);
    ExpectProtocolError();
  });
}

TEST_F(TcpFiringsTest, ASendEndsWhoseOtherEndWantsAFiringTwice) {
  OnLane([&] {
    TcpOp& send = Join(LaunchRole::kSend, 8);
    firings_.OnWanted(send, 1);
    EXPECT_FALSE(ops_.has_answers());
    firings_.OnWanted(send, 1);
    ExpectProtocolError();
  });
}

TEST_F(TcpFiringsTest, ASendEndsOfWhichBytesArriveThatWereNotSent) {
  OnLane([&] {
    TcpOp& send = Join(LaunchRole::kSend, 8);
    client_.Fire(0, 1);
    firings_.Poll();
    firings_.OnWanted(send, 1);
    firings_.OnArrived(send, 1);  // it is queued, and no byte of it in a message
    EXPECT_FALSE(Queued());
    ExpectProtocolError();
    EXPECT_EQ(client_.Over(0), 0u);
  });
}

TEST_F(TcpFiringsTest, ASendEndsOfWhichAFiringArrivesThatHasNotBegun) {
  OnLane([&] {
    firings_.OnArrived(Join(LaunchRole::kSend, 0), 1);
    ExpectProtocolError();
  });
}

}  // namespace
}  // namespace ferry
