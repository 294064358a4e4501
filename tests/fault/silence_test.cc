// SPDX-License-Identifier: Apache-2.0
// A daemon that neither lives nor dies: stopped, silent, its sockets open. After 5 s its peers give
// it up; when it wakes it is told, and the link heals.
#include <signal.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;

class SilenceTest : public RouteTest {
 protected:
  void TearDown() override {
    ends_.clear();
    RouteTest::TearDown();
  }
  // Ends of all the test's sessions; they outlive the batches.
  std::vector<End> ends_;
};
INSTANTIATE_PEER_ROUTES(SilenceTest);

TEST_P(SilenceTest, AStoppedDestinationIsGivenUpAndComesBack) {
  StartForRoute();
  ends_.push_back(OpenSource(kMiB));
  ends_.push_back(OpenDestination(kMiB));
  End &source = ends_[0], &destination = ends_[1];
  ExpectTransfer(source, destination, "before", options());
  // Posted at both ends and matched; one posted at each end only.
  Transfer later(destination.device, "matched", {source.arena.Range(0, 4096)});
  later.defined_at = Transfer::DefinedAt{0, 1};
  Batch matched_send = Must(source.session.Send(source.device, {later}, options()));
  Batch matched_receive =
      Receive(destination, source, "matched", {destination.arena.Range(0, 4096)}, options());
  Batch lone_send =
      Send(source, destination, "lone send", {source.arena.Range(4096, 4096)}, options());
  Batch lone_receive = Receive(destination, source, "lone receive",
                               {destination.arena.Range(4096, 4096)}, options());
  ASSERT_TRUE(Await([&] { return node(0).admin().Count("matched") == 1; }));
  const auto stopped = Clock::now();
  node(1).Signal(SIGSTOP);
  EXPECT_THAT(source.session.Define(0, 1), IsOk());  // on its way to somebody who does not listen
  EXPECT_THAT(matched_send.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(lone_send.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_GT(Clock::now() - stopped, seconds(3));   // not at the first heartbeat that is late
  EXPECT_LT(Clock::now() - stopped, seconds(25));  // the bound is 5 s of silence
  EXPECT_EQ(node(0).admin().PeerState("node-b") == "up", false);
  // The zombie wakes: its clients hear the same.
  node(1).Signal(SIGCONT);
  EXPECT_THAT(matched_receive.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(lone_receive.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  ASSERT_TRUE(nodes().AwaitLink(0, 1));
  ASSERT_TRUE(nodes().AwaitLink(1, 0));
  ExpectTransfer(source, destination, "healed", options());
  ExpectTransfer(destination, source, "healed backwards", options());
}

TEST_P(SilenceTest, AStoppedSourceIsGivenUpInTheMiddleOfTransfers) {
  constexpr uint64_t kEach = 64 * kMiB;
  constexpr uint64_t kCount = 8;
  StartForRoute();
  ends_.push_back(OpenSource(kEach * kCount));
  ends_.push_back(OpenDestination(kEach * kCount));
  End &source = ends_[0], &destination = ends_[1];
  std::vector<Transfer> sends, receives;
  for (uint64_t i = 0; i < kCount; ++i) {
    Fill(source.arena, i * kEach, kEach, i);
    sends.emplace_back(destination.device, absl::StrCat(i),
                       std::vector<Range>{source.arena.Range(i * kEach, kEach)});
    receives.emplace_back(source.device, absl::StrCat(i),
                          std::vector<Range>{destination.arena.Range(i * kEach, kEach)});
  }
  Batch receive = Must(destination.session.Receive(destination.device, receives, options()));
  Batch send = Must(source.session.Send(source.device, sends, options()));
  ASSERT_TRUE(Await([&] {
    return node(1).admin().Status().bytes_received() > 0 || node(1).admin().Count("launched") > 0;
  }));
  node(0).Signal(SIGSTOP);
  // On `mapped` the destination copies without the source, so it may well come to an end.
  EXPECT_THAT(NameOf(receive.Wait(kSoon)), AnyOf("OK", "UNAVAILABLE/PEER_UNREACHABLE"));
  for (uint64_t i = 0; i < kCount; ++i) {  // who says OK has the bytes
    if (receive.TransferStatus(i).ok()) {
      EXPECT_TRUE(Has(destination.arena, i * kEach, kEach, i)) << i;
    }
  }
  ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") != "up"; }));
  node(0).Signal(SIGCONT);
  EXPECT_THAT(NameOf(send.Wait(kSoon)), AnyOf("OK", "UNAVAILABLE/PEER_UNREACHABLE"));
  End small_source = OpenSource(kMiB), small_destination = OpenDestination(kMiB);
  ExpectTransfer(small_source, small_destination, "healed", options());
}

// Nothing of it is anywhere but at its own daemon, which is well.
TEST_P(SilenceTest, AnUnmatchedReceiveHearsThatTheSourcesDaemonIsSilent) {
  StartForRoute();
  ends_.push_back(OpenSource(kMiB));
  ends_.push_back(OpenDestination(kMiB));
  End &source = ends_[0], &destination = ends_[1];
  ExpectTransfer(source, destination, "before", options());
  Batch receive = Receive(destination, source, "lone", {destination.arena.All()}, options());
  node(0).Signal(SIGSTOP);
  EXPECT_THAT(receive.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  node(0).Signal(SIGCONT);
  ASSERT_TRUE(nodes().AwaitLink(0, 1));
  ASSERT_TRUE(nodes().AwaitLink(1, 0));
  ExpectTransfer(source, destination, "healed", options());
}

// A pause shorter than the patience harms nothing.
TEST_P(SilenceTest, AShortPauseIsForgiven) {
  StartForRoute();
  ends_.push_back(OpenSource(kMiB));
  ends_.push_back(OpenDestination(kMiB));
  End &source = ends_[0], &destination = ends_[1];
  ExpectTransfer(source, destination, "before", options());
  Fill(source.arena, 0, kMiB, 4);
  Batch receive = Receive(destination, source, "k", {destination.arena.All()}, options());
  node(1).Signal(SIGSTOP);
  Batch send = Send(source, destination, "k", {source.arena.All()}, options());
  EXPECT_THAT(send.Wait(milliseconds(1500)), Is("DEADLINE_EXCEEDED"));  // waits meanwhile
  node(1).Signal(SIGCONT);
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination.arena, 0, kMiB, 4));
}

using StoppedDaemonTest = ClusterTest;

// Its own client does not hang: whether the post was taken nobody knows, so the session goes.
TEST_F(StoppedDaemonTest, APostEndsWithTheSession) {
  Start();
  End ends[2];  // one posts by its socket, one by calls
  std::vector<Batch> before;
  for (End& end : ends) {
    end = OpenEnd(0, 4096);
    before.push_back(
        Must(end.session.Receive(0, {Transfer(1, absl::StrCat("before ", end.session.id()),
                                              RangesOf(end.arena, &end == &ends[1]))})));
  }
  node(0).Signal(SIGSTOP);
  std::vector<std::thread> posters;
  for (const char* key : {"one", "two"}) {  // who waits for an answer, and who waits beside
    for (End& end : ends) {
      posters.emplace_back([&end, key, by_call = &end == &ends[1]] {
        EXPECT_THAT(end.session.Receive(0, {Transfer(1, key, RangesOf(end.arena, by_call))}),
                    Is("UNAVAILABLE/DAEMON_LOST", ::testing::HasSubstr("stopped?")));
      });
    }
  }
  for (std::thread& poster : posters) poster.join();
  for (Batch& batch : before) EXPECT_THAT(batch.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  node(0).Signal(SIGCONT);
}

// Nobody calls: the session finds out by itself, all waits end, and nothing waits once more.
TEST_F(StoppedDaemonTest, WhoOnlyWaitsIsToldAndWhatFollowsFailsAtOnce) {
  constexpr std::chrono::minutes kLong{3};
  Start();
  End end = OpenEnd(0, 4096);
  std::vector<Arena> arenas;  // if each waited 30 s, this test would not end in time
  for (int i = 0; i < 200; ++i) arenas.push_back(Must(end.session.CreateArena(0, 4096)));
  PostOptions options;
  options.deadline = std::chrono::hours(1);
  Batch batch =
      Must(end.session.Receive(0, {Transfer(1, "never sent", {end.arena.All()})}, options));
  node(0).Signal(SIGSTOP);
  EXPECT_THAT(batch.Wait(kLong), Is("UNAVAILABLE/DAEMON_LOST", ::testing::HasSubstr("stopped?")));
  EXPECT_THAT(end.session.Health(), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(end.session.Receive(0, {Transfer(1, "new", {end.arena.All()})}),
              Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(batch.Cancel(), Is("UNAVAILABLE/DAEMON_LOST"));
  arenas.clear();
  node(0).Signal(SIGCONT);
  EXPECT_THAT(end.session.WaitAttached(kLong), IsOk());
  End other = OpenEnd(0, 4096, 1);
  ExpectTransfer(end, other, "well again");
}

// The calls of a teardown are the first that find the daemon silent.
TEST_F(StoppedDaemonTest, ATeardownWaitsOnceInAll) {
  Start();
  Session session = nodes().Open(0);
  std::vector<Arena> arenas;
  for (int i = 0; i < 200; ++i) arenas.push_back(Must(session.CreateArena(0, 4096)));
  Batch batch = Must(session.Receive(0, {Transfer(1, "k", {arenas[0].All()})}));
  node(0).Signal(SIGSTOP);
  arenas.clear();
  EXPECT_THAT(batch.Cancel(), Is("UNAVAILABLE/DAEMON_LOST"));
  node(0).Signal(SIGCONT);
}

// Whoever closes a session does not wait for it.
TEST_F(StoppedDaemonTest, ASessionIsClosedBeforeTheDaemonIsGivenUp) {
  Start();
  Session witness = nodes().Open(0);
  End end = OpenEnd(0, 4096);
  Batch batch = Must(end.session.Receive(0, {Transfer(1, "k", {end.arena.All()})}));
  node(0).Signal(SIGSTOP);
  end.session.Close();
  EXPECT_THAT(batch.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  end.arena = Arena();
  EXPECT_THAT(witness.Health(), IsOk());
  node(0).Signal(SIGCONT);
}

}  // namespace
}  // namespace ferry::testing
