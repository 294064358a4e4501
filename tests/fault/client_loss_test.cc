// SPDX-License-Identifier: Apache-2.0
// A client is killed before, during and after a transfer: the other end learns of it, what it held
// is taken back, nobody else notices.
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

// The bound is a second; a test allows ten times as much.
constexpr std::chrono::seconds kReclaim{10};

class ClientLossTest : public RouteTest {
 protected:
  void StartAll(uint64_t bytes) {
    StartForRoute();
    // Two that have nothing to do with it.
    witness_[0] = OpenSource(kMiB);
    witness_[1] = OpenDestination(kMiB);
    ExpectTransfer(witness_[0], witness_[1], "before", options());
    source_ = SpawnSource(bytes);
    destination_ = SpawnDestination(bytes);
    bytes_ = bytes;
  }
  void TearDown() override {
    ExpectTransfer(witness_[0], witness_[1], "after", options());
    EXPECT_THAT(witness_[0].session.Health(), IsOk());
    witness_[0] = End();
    witness_[1] = End();
    source_.reset();
    destination_.reset();
    RouteTest::TearDown();
  }
  std::string Send(const std::string& more = "") {
    return source_->Tell(absl::StrCat("send ", source_device(), " ", destination_device(),
                                      " k 0 0 ", bytes_, route_option(), more));
  }
  std::string Receive(const std::string& more = "") {
    return destination_->Tell(absl::StrCat("receive ", destination_device(), " ", source_device(),
                                           " k 0 0 ", bytes_, route_option(), more));
  }
  // The killed client's session, and its arenas with it, are gone from its daemon.
  bool AwaitReclaimed(const ClientProcess& client) {
    return Await(
        [&] {
          for (size_t i = 0; i < nodes().size(); ++i) {
            const admin::v1::ListSessionsResponse all = node(i).admin().Sessions();
            for (const auto& session : all.sessions()) {
              if (session.pid() == client.pid()) return false;
            }
          }
          return true;
        },
        kReclaim);
  }
  End witness_[2];
  std::unique_ptr<ClientProcess> source_, destination_;
  uint64_t bytes_ = 0;
};
INSTANTIATE_ALL_ROUTES(ClientLossTest);

TEST_P(ClientLossTest, SenderDiesBeforeItsDataIsDefined) {
  StartAll(kMiB);
  ASSERT_EQ(Send(" defined=0:1"), "OK 0");
  ASSERT_EQ(Receive(), "OK 0");
  ASSERT_TRUE(Await([&] { return node(destination_node()).admin().Count("matched") > 0; }));
  source_->Kill();
  EXPECT_THAT(destination_->Tell("wait 0 10000"), StartsWith("ABORTED/POISONED"));
  EXPECT_TRUE(AwaitReclaimed(*source_));
}

// Nobody waits for it yet. Who posts the receive later learns at once that nobody will send.
TEST_P(ClientLossTest, SenderDiesUnmatched) {
  StartAll(4096);
  ASSERT_EQ(Send(), "OK 0");
  ASSERT_TRUE(AwaitOffer());
  source_->Kill();
  EXPECT_TRUE(AwaitReclaimed(*source_));
  ASSERT_EQ(Receive(), "OK 0");
  EXPECT_THAT(destination_->Tell("wait 0 10000"), StartsWith("ABORTED/PEER_CLIENT_GONE"));
  // The key is free.
  source_ = SpawnSource(4096);
  ASSERT_EQ(source_->Tell("fill 0 0 4096 5"), "OK");
  ASSERT_EQ(Send(), "OK 0");
  ASSERT_EQ(Receive(), "OK 1");
  EXPECT_EQ(destination_->Tell("wait 1 10000"), "OK");
  EXPECT_EQ(destination_->Tell("check 0 0 4096 5"), "OK");
}

// A client that starts again and posts what its dead predecessor had posted is not in that one's
// way.
TEST_P(ClientLossTest, SenderDiesUnmatchedAndItsSuccessorSends) {
  StartAll(4096);
  ASSERT_EQ(Send(), "OK 0");
  ASSERT_TRUE(AwaitOffer());
  source_->Kill();
  EXPECT_TRUE(AwaitReclaimed(*source_));
  source_ = SpawnSource(4096);
  ASSERT_EQ(source_->Tell("fill 0 0 4096 5"), "OK");
  ASSERT_EQ(Send(), "OK 0");
  ASSERT_TRUE(AwaitOffer());  // a receive before it would meet the dead one
  ASSERT_EQ(Receive(), "OK 0");
  EXPECT_EQ(destination_->Tell("wait 0 10000"), "OK");
  EXPECT_EQ(source_->Tell("wait 0 10000"), "OK");
  EXPECT_EQ(destination_->Tell("check 0 0 4096 5"), "OK");
}

TEST_P(ClientLossTest, ReceiverDiesBeforeTheLaunch) {
  StartAll(kMiB);
  ASSERT_EQ(Send(), "OK 0");
  ASSERT_EQ(Receive(" defined=0:1"), "OK 0");
  ASSERT_TRUE(Await([&] { return node(destination_node()).admin().Count("matched") > 0; }));
  destination_->Kill();
  EXPECT_THAT(source_->Tell("wait 0 10000"), StartsWith("ABORTED/PEER_CLIENT_GONE"));
  EXPECT_TRUE(AwaitReclaimed(*destination_));
}

// In the middle of many large transfers. Those that were over stay over; the rest ends with the
// reason; a launch that is under way may still end well, since its memory outlives the process.
TEST_P(ClientLossTest, EitherDiesDuringTransfers) {
  constexpr uint64_t kEach = 32 * kMiB;
  constexpr uint64_t kCount = 16;
  StartAll(kEach * kCount);
  for (const bool sender : {true, false}) {
    const std::string what =
        absl::StrCat(" d", sender, " 0 0 ", kEach, " count=", kCount, route_option());
    const uint64_t before = node(destination_node()).admin().Status().bytes_received();
    destination_->Order(absl::StrCat("receive ", destination_device(), " ", source_device(), what));
    source_->Order(absl::StrCat("send ", source_device(), " ", destination_device(), what));
    ASSERT_TRUE(Await([&] {
      return node(destination_node()).admin().Status().bytes_received() > before ||
             node(destination_node()).admin().Count("launched") > 0;
    }));
    ClientProcess& dies = sender ? *source_ : *destination_;
    ClientProcess& lives = sender ? *destination_ : *source_;
    dies.Kill();
    ASSERT_THAT(lives.Answer(), StartsWith("OK"));
    EXPECT_THAT(lives.Tell("wait 0 20000"), AnyOf("OK", StartsWith("ABORTED/POISONED"),
                                                  StartsWith("ABORTED/PEER_CLIENT_GONE")));
    EXPECT_TRUE(AwaitReclaimed(dies));
    source_ = nullptr;
    destination_ = nullptr;
    source_ = SpawnSource(kEach * kCount);
    destination_ = SpawnDestination(kEach * kCount);
  }
}

TEST_P(ClientLossTest, EitherDiesAfterTheEnd) {
  StartAll(kMiB);
  ASSERT_EQ(source_->Tell(absl::StrCat("fill 0 0 ", kMiB, " 3")), "OK");
  ASSERT_EQ(Send(), "OK 0");
  ASSERT_EQ(Receive(), "OK 0");
  ASSERT_EQ(destination_->Tell("wait 0 10000"), "OK");
  ASSERT_EQ(source_->Tell("wait 0 10000"), "OK");
  source_->Kill();
  EXPECT_TRUE(AwaitReclaimed(*source_));
  EXPECT_EQ(destination_->Tell("wait 0 0"), "OK");
  EXPECT_EQ(destination_->Tell(absl::StrCat("check 0 0 ", kMiB, " 3")), "OK");
  EXPECT_EQ(destination_->Tell("health"), "OK");
  destination_->Kill();
  EXPECT_TRUE(AwaitReclaimed(*destination_));
}

class StoppedClientTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(StoppedClientTest);

// A client that is merely slow, stopped for a while, loses nothing: the daemon moves its bytes
// without it.
TEST_P(StoppedClientTest, AStoppedClientStillReceives) {
  StartForRoute();
  auto source = SpawnSource(kMiB);
  auto destination = SpawnDestination(kMiB);
  ASSERT_EQ(source->Tell(absl::StrCat("fill 0 0 ", kMiB, " 3")), "OK");
  ASSERT_EQ(destination->Tell(absl::StrCat("receive ", destination_device(), " ", source_device(),
                                           " k 0 0 ", kMiB, route_option())),
            "OK 0");
  destination->Signal(SIGSTOP);
  ASSERT_EQ(source->Tell(absl::StrCat("send ", source_device(), " ", destination_device(),
                                      " k 0 0 ", kMiB, route_option())),
            "OK 0");
  EXPECT_EQ(source->Tell("wait 0 10000"), "OK");
  destination->Signal(SIGCONT);
  EXPECT_EQ(destination->Tell("wait 0 10000"), "OK");
  EXPECT_EQ(destination->Tell(absl::StrCat("check 0 0 ", kMiB, " 3")), "OK");
}

// What a stopped sender has defined arrives without it; what it has not waits for its deadline.
TEST_P(StoppedClientTest, AStoppedClientStillSends) {
  StartForRoute();
  auto source = SpawnSource(2 * kMiB);
  auto destination = SpawnDestination(2 * kMiB);
  ASSERT_EQ(source->Tell(absl::StrCat("fill 0 0 ", kMiB, " 3")), "OK");
  const auto send = [&](const std::string& what) {
    return source->Tell(absl::StrCat("send ", source_device(), " ", destination_device(), " ", what,
                                     route_option()));
  };
  const auto receive = [&](const std::string& what) {
    return destination->Tell(absl::StrCat("receive ", destination_device(), " ", source_device(),
                                          " ", what, route_option()));
  };
  ASSERT_EQ(send(absl::StrCat("there 0 0 ", kMiB)), "OK 0");
  ASSERT_EQ(send(absl::StrCat("later 0 ", kMiB, " ", kMiB, " defined=0:1")), "OK 1");
  source->Signal(SIGSTOP);
  ASSERT_EQ(receive(absl::StrCat("there 0 0 ", kMiB)), "OK 0");
  ASSERT_EQ(receive(absl::StrCat("later 0 ", kMiB, " ", kMiB, " deadline_ms=300")), "OK 1");
  EXPECT_EQ(destination->Tell("wait 0 10000"), "OK");
  EXPECT_EQ(destination->Tell(absl::StrCat("check 0 0 ", kMiB, " 3")), "OK");
  EXPECT_THAT(destination->Tell("wait 1 10000"),
              ::testing::StartsWith("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  source->Signal(SIGCONT);
  EXPECT_EQ(source->Tell("wait 0 10000"), "OK");
  EXPECT_THAT(source->Tell("wait 1 10000"),
              ::testing::StartsWith("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
}

class ManyDeathsTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(ManyDeathsTest);

// Client after client dies at whatever point it has reached: nothing grows.
TEST_P(ManyDeathsTest, NothingGrows) {
  constexpr uint64_t kBytes = 8 * kMiB;
  constexpr int kWarm = 5;
  constexpr int kRounds = 50;  // of each route: 200 in all
  StartForRoute();
  size_t fds[2] = {}, mappings[2] = {};
  const auto look = [&](size_t i, size_t* f, size_t* m) {
    *f = node(i).process().OpenFds();
    *m = node(i).process().MemfdMappings();
  };
  for (int round = 0; round < kWarm + kRounds; ++round) {
    if (round == kWarm) {
      for (size_t i : {0, 1}) {
        ASSERT_TRUE(node(i).AwaitIdle());
        look(i, &fds[i], &mappings[i]);
      }
    }
    auto source = SpawnSource(kBytes);
    auto destination = SpawnDestination(kBytes);
    const std::string what =
        absl::StrCat(" r", round, " 0 0 ", kBytes / 8, " count=8", route_option());
    source->Order(absl::StrCat("send ", source_device(), " ", destination_device(), what));
    destination->Order(absl::StrCat("receive ", destination_device(), " ", source_device(), what));
    // A third dies posting, a third moving, a third done.
    if (round % 3 >= 1) {
      source->Answer();
      destination->Answer();
    }
    if (round % 3 == 2) {
      EXPECT_EQ(source->Tell("wait 0 10000"), "OK");
    }
    if (round % 2 == 0) {
      source->Kill();
      destination->Kill();
    } else {
      destination->Kill();
      source->Kill();
    }
  }
  for (size_t i : {0, 1}) {
    ASSERT_TRUE(node(i).AwaitIdle());
    size_t f = 0, m = 0;
    EXPECT_TRUE(Await([&] {
      look(i, &f, &m);
      return f <= fds[i] && m <= mappings[i];
    })) << node(i).name()
        << " has " << f << " descriptors and " << m << " memfds mapped; before: " << fds[i]
        << " and " << mappings[i];
  }
}

class ForkTest : public ClusterTest {};

TEST_F(ForkTest, AChildGetsAClearErrorAndDoesNotKeepTheSession) {
  Start({.nodes = 1});
  ClientProcess client(node(0).client_dir(), "parent");
  ASSERT_EQ(client.Tell("arena 0 4096"), "OK 0");
  EXPECT_THAT(client.Tell("fork"), StartsWith("FAILED_PRECONDITION/FORKED"));
  // The parent goes on.
  EXPECT_EQ(client.Tell("health"), "OK");
  ASSERT_EQ(client.Tell("send 0 0 k 0 0 4096"), "OK 0");
  // A child that lives on does not hold the session of a parent that dies.
  ASSERT_EQ(client.Tell("forkhold"), "OK");
  client.Kill();
  EXPECT_TRUE(Await([&] { return node(0).admin().Status().sessions() == 0; }, kReclaim));
}

}  // namespace
}  // namespace ferry::testing
