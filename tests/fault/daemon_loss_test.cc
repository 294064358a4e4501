// SPDX-License-Identifier: Apache-2.0
// A daemon is killed before, during and after a transfer: its clients' waits end, their memory
// stays, the clients of its peer are told, and a new daemon takes over.
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;

// The bounds are 100 ms for the daemon's own clients and at once for a peer's; a test allows ten
// times.
constexpr std::chrono::milliseconds kDaemonLost{1000};

class DaemonLossTest : public RouteTest {
 protected:
  void StartEnds(uint64_t bytes) {
    StartForRoute();
    source_ = OpenSource(bytes);
    destination_ = OpenDestination(bytes);
    Fill(source_.arena, 0, bytes, 1);
  }
  void TearDown() override {
    source_ = End();
    destination_ = End();
    RouteTest::TearDown();
  }
  // Everybody starts again, and it works.
  void ExpectRecovery(size_t restarted) {
    ASSERT_TRUE(node(restarted).Start());
    End source = OpenSource(kMiB), destination = OpenDestination(kMiB);
    ExpectTransfer(source, destination, "after the restart", options());
  }
  End source_, destination_;
};
INSTANTIATE_ALL_ROUTES(DaemonLossTest);

TEST_P(DaemonLossTest, TheDestinationsDaemonDiesBeforeTheMatch) {
  StartEnds(4096);
  Fill(destination_.arena, 0, 4096, 9);
  Batch receive = Receive(destination_, source_, "waits", {destination_.arena.All()}, options());
  Batch send = Send(source_, destination_, "waits too", {source_.arena.All()}, options());
  ASSERT_TRUE(Await([&] { return node(destination_node()).admin().Transfers().total() > 0; }));
  if (!GetParam().one_node) {
    ASSERT_TRUE(nodes().AwaitLink(0, 1));
  }
  node(destination_node()).Kill();
  EXPECT_THAT(receive.Wait(kDaemonLost), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(destination_.session.Health(), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(destination_.session.WaitOver(0, 1, kDaemonLost),
              IsOk());  // the words end, and tell of a failure
  EXPECT_EQ(destination_.session.OverFailures(0).first_failed, 1u);
  EXPECT_THAT(destination_.session.Send(destination_.device, {Transfer(0, "k", {})}),
              Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_TRUE(Has(destination_.arena, 0, 4096, 9));  // mapped memory stays readable
  EXPECT_THAT(send.Wait(kSoon), GetParam().one_node ? Is("UNAVAILABLE/DAEMON_LOST")
                                                    : Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_TRUE(Has(source_.arena, 0, 4096, 1));
  ExpectRecovery(destination_node());
}

TEST_P(DaemonLossTest, TheSourcesDaemonDiesBeforeItsDataIsDefined) {
  StartEnds(4096);
  Transfer later(destination_.device, "later", {source_.arena.All()});
  later.defined_at = Transfer::DefinedAt{0, 1};
  Batch send = Must(source_.session.Send(source_.device, {later}, options()));
  Batch receive = Receive(destination_, source_, "later", {destination_.arena.All()}, options());
  ASSERT_TRUE(Await([&] { return node(destination_node()).admin().Count("matched") > 0; }));
  node(0).Kill();
  EXPECT_THAT(send.Wait(kDaemonLost), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(receive.Wait(kSoon), GetParam().one_node ? Is("UNAVAILABLE/DAEMON_LOST")
                                                       : Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(source_.session.Define(0, 1), IsOk());  // to nobody
  ExpectRecovery(0);
}

TEST_P(DaemonLossTest, EitherDaemonDiesDuringTransfers) {
  constexpr uint64_t kEach = 32 * kMiB;
  constexpr uint64_t kCount = 16;
  for (const bool source_dies : {true, false}) {
    if (cluster_ == nullptr) {
      StartForRoute();
    }
    source_ = OpenSource(kEach * kCount);
    destination_ = OpenDestination(kEach * kCount);
    std::vector<Transfer> sends, receives;
    for (uint64_t i = 0; i < kCount; ++i) {
      sends.emplace_back(destination_.device, absl::StrCat(i),
                         std::vector<Range>{source_.arena.Range(i * kEach, kEach)});
      receives.emplace_back(source_.device, absl::StrCat(i),
                            std::vector<Range>{destination_.arena.Range(i * kEach, kEach)});
    }
    Batch receive = Must(destination_.session.Receive(destination_.device, receives, options()));
    Batch send = Must(source_.session.Send(source_.device, sends, options()));
    ASSERT_TRUE(Await([&] {
      return node(destination_node()).admin().Status().bytes_received() > 0 ||
             node(destination_node()).admin().Count("launched") > 0;
    }));
    const size_t victim = source_dies ? 0 : destination_node();
    node(victim).Kill();
    Batch& own = source_dies ? send : receive;
    Batch& others = source_dies ? receive : send;
    EXPECT_THAT(NameOf(own.Wait(kDaemonLost)), AnyOf("UNAVAILABLE/DAEMON_LOST", "OK"));
    const std::string other = NameOf(others.Wait(kSoon));
    // A network's route may find its connections gone, and none to be had, before the link's end is
    // heard of.
    const bool network = GetParam().route == FERRY_ROUTE_TCP || GetParam().route == FERRY_ROUTE_UCX;
    EXPECT_THAT(other,
                AnyOf("OK", "UNAVAILABLE/DAEMON_LOST", "UNAVAILABLE/PEER_UNREACHABLE",
                      "ABORTED/COMM_ABORTED", network ? "UNAVAILABLE/ROUTE_UNAVAILABLE" : "OK"));
    for (size_t i = 0; i < kCount; ++i) {  // each has its own ending
      EXPECT_NE(NameOf(send.TransferStatus(i)), "FAILED_PRECONDITION") << i;
      EXPECT_NE(NameOf(receive.TransferStatus(i)), "FAILED_PRECONDITION") << i;
    }
    source_ = End();
    destination_ = End();
    ExpectRecovery(victim);
  }
}

TEST_P(DaemonLossTest, ADaemonDiesAfterTheEnd) {
  StartEnds(kMiB);
  ExpectTransfer(source_, destination_, "done", options());
  Batch receive = Receive(destination_, source_, "last", {destination_.arena.All()}, options());
  Batch send = Send(source_, destination_, "last", {source_.arena.All()}, options());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  node(0).Kill();
  EXPECT_TRUE(Await([&] { return NameOf(source_.session.Health()) == "UNAVAILABLE/DAEMON_LOST"; },
                    kDaemonLost));
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_EQ(memcmp(source_.arena.data(), destination_.arena.data(), kMiB), 0);
  ExpectRecovery(0);
}

class PeerDaemonLossTest : public DaemonLossTest {};
INSTANTIATE_PEER_ROUTES(PeerDaemonLossTest);

// What did not know the dead incarnation is not mixed up with the new one.
TEST_P(PeerDaemonLossTest, TheOtherDaemonsSessionsGoOnWithTheNewIncarnation) {
  StartEnds(kMiB);
  ExpectTransfer(source_, destination_, "first life", options());
  for (int life = 0; life < 3; ++life) {
    Batch orphan = Receive(destination_, source_, absl::StrCat("orphan", life),
                           {destination_.arena.All()}, options());
    ASSERT_TRUE(nodes().AwaitLink(1, 0));
    node(0).Kill();
    EXPECT_THAT(orphan.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
    ASSERT_TRUE(node(0).Start());
    source_ = OpenSource(kMiB);
    ExpectTransfer(source_, destination_, "next life", options());
  }
}

}  // namespace
}  // namespace ferry::testing
