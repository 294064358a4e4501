// SPDX-License-Identifier: Apache-2.0
// Clients and daemons die between and during firings of prepared transfers: every waiter is
// released, with the reason, and the daemons that live are as before.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

class PreparedLossTest : public RouteTest {
 protected:
  void StartAll(uint64_t bytes) {
    StartForRoute();
    source_ = SpawnSource(bytes);
    destination_ = SpawnDestination(bytes);
    ASSERT_EQ(source_->Tell(absl::StrCat("prepare_send ", source_device(), " ",
                                         destination_device(), " k 0 0 ", bytes, route_option())),
              "OK 0");
    ASSERT_EQ(destination_->Tell(absl::StrCat("prepare_receive ", destination_device(), " ",
                                              source_device(), " k 0 0 ", bytes, route_option())),
              "OK 0");
  }
  void Fire(int times) {
    source_->Order(absl::StrCat("fire 0 ", times));
    EXPECT_EQ(destination_->Tell(absl::StrCat("fire 0 ", times)), absl::StrCat("OK ", times));
    EXPECT_EQ(source_->Answer(), absl::StrCat("OK ", times));
  }
  void TearDown() override {
    source_.reset();
    destination_.reset();
    RouteTest::TearDown();
  }
  std::unique_ptr<ClientProcess> source_, destination_;
};
INSTANTIATE_ALL_ROUTES(PreparedLossTest);

TEST_P(PreparedLossTest, AClientDiesBetweenFirings) {
  StartAll(4096);
  Fire(20);
  source_->Kill();
  EXPECT_THAT(destination_->Tell("fire 0 1"), StartsWith("ABORTED/PEER_CLIENT_GONE"));
}

TEST_P(PreparedLossTest, AClientDiesWhileBothFireAsFastAsTheyCan) {
  for (const bool source : {true, false}) {
    StartAll(source ? 8 : 4 * kMiB);
    source_->Order("fire 0 1000000000");
    destination_->Order("fire 0 1000000000");
    // Some are over.
    ASSERT_TRUE(Await([&] {
      const admin::v1::ListTransfersResponse all = node(destination_node()).admin().Transfers();
      for (const auto& row : all.transfers()) {
        if (row.firings() > 20) return true;
      }
      return false;
    }));
    (source ? source_ : destination_)->Kill();
    EXPECT_THAT((source ? destination_ : source_)->Answer(),
                StartsWith("ABORTED/PEER_CLIENT_GONE"));
    source_.reset();
    destination_.reset();
    ASSERT_TRUE(node(0).AwaitIdle());
    cluster_.reset();
  }
}

TEST_P(PreparedLossTest, TheOtherDaemonDies) {
  StartAll(4096);
  Fire(20);
  source_->Order("fire 0 1000000000");
  destination_->Order("fire 0 1000000000");
  node(destination_node()).Kill();
  EXPECT_THAT(destination_->Answer(), StartsWith("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(source_->Answer(), GetParam().one_node ? StartsWith("UNAVAILABLE/DAEMON_LOST")
                                                     : StartsWith("UNAVAILABLE/PEER_UNREACHABLE"));
}

// What was prepared with a daemon is prepared again when that comes back; its other end, whose
// batch has ended, prepares anew.
TEST_P(PreparedLossTest, ADaemonThatComesBackIsToldToPrepareAgain) {
  StartForRoute();
  End source = OpenSource(kMiB), destination = OpenDestination(kMiB);
  const auto send = [&](const char* key, uint64_t at) {
    return source.session.PrepareSend(
        source.device, {Transfer(destination.device, key, {source.arena.Range(at, 4096)})},
        options());
  };
  const auto receive = [&](const char* key, uint64_t at) {
    return destination.session.PrepareReceive(
        destination.device, {Transfer(source.device, key, {destination.arena.Range(at, 4096)})},
        options());
  };
  // Released ones between them: the next daemon gives out other numbers.
  Prepared gone = Must(receive("gone", 0));
  Prepared to[] = {Must(receive("0", 0)), Must(receive("1", 4096))};
  Prepared from[] = {Must(send("0", 0)), Must(send("1", 4096))};
  ASSERT_THAT(gone.Release(), IsOk());
  const auto fire_both = [&](uint64_t seed) {
    for (int i = 0; i < 2; ++i) {
      const uint64_t at = static_cast<uint64_t>(i) * 4096;
      Fill(source.arena, at, 4096, seed + at);
      Fill(destination.arena, at, 4096, 0);
      ASSERT_THAT(from[i].Fire(), IsOk());
      ASSERT_THAT(to[i].Fire(), IsOk());
      ASSERT_THAT(from[i].Wait(kSoon), IsOk());
      ASSERT_THAT(to[i].Wait(kSoon), IsOk());
      ASSERT_TRUE(Has(destination.arena, at, 4096, seed + at));
    }
  };
  fire_both(1);
  fire_both(2);
  uint64_t firing = 0;
  ASSERT_THAT(to[0].Fire(&firing), IsOk());
  node(destination_node()).Kill();
  EXPECT_THAT(to[0].Wait(firing, kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(to[1].Fire(), Is("UNAVAILABLE/DAEMON_LOST"));
  ASSERT_TRUE(node(destination_node()).Start());
  ASSERT_THAT(destination.session.WaitAttached(kSoon), IsOk());
  for (Prepared& again : to) {
    EXPECT_THAT(again.Health(), IsOk());
    EXPECT_EQ(again.fired(), 0u);
  }
  if (GetParam().one_node) {
    ASSERT_THAT(source.session.WaitAttached(kSoon), IsOk());
  } else {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(from[i].Wait(1000, kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
      from[i] = Prepared();
      from[i] = Must(send(i == 0 ? "0" : "1", i == 0 ? 0 : 4096));
    }
  }
  fire_both(3);
  fire_both(4);
}

}  // namespace
}  // namespace ferry::testing
