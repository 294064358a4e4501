// SPDX-License-Identifier: Apache-2.0
// Drains that are taken back, interrupted, joined, begun by signals, and seen from the other node.
#include <signal.h>
#include <string.h>

#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Of drains that end before their deadline.
constexpr char kDrainsFor[] = "2s";
constexpr absl::Duration kPastTheDrain = absl::Milliseconds(2500);

class DrainTest : public ClusterTest {
 protected:
  // `ferryctl drain` at node i, until the daemon drains.
  void StartDrain(const std::string& timeout, size_t i = 0) {
    SpawnOptions spawn;
    spawn.arguments = {FerryctlProgram(), "--runtime-dir", node(i).runtime_dir(),
                       "--timeout",       timeout,         "drain"};
    spawn.output = drain_output_;
    drain_.emplace(spawn);
    ASSERT_TRUE(Await([&] { return node(i).admin().Status().draining(); }));
  }
  // A pair at node 0 that ends well once Define(0, 1) is called.
  Batch PostUndefined(End& end) {
    Transfer later(1, "pair", {});
    later.defined_at = Transfer::DefinedAt{0, 1};
    Must(end.session.Receive(1, {Transfer(0, "pair", {})}));
    return Must(end.session.Send(0, {later}));
  }
  // A transfer of a session of its own that ends by its deadline, `after` from now, whether the
  // node drains meanwhile or not: who waits for it is past a drain's deadline that is earlier.
  Batch PostClock(End& clock, absl::Duration after) {
    PostOptions options;
    options.deadline = absl::ToChronoNanoseconds(after);
    Transfer never(clock.device, "clock", {});
    never.defined_at = Transfer::DefinedAt{0, 1};
    Must(clock.session.Receive(clock.device, {Transfer(clock.device, "clock", {})}, options));
    return Must(clock.session.Send(clock.device, {never}, options));
  }
  bool LogHas(const std::string& text) {
    return Await([&] { return absl::StrContains(node(0).Log(), text); });
  }

  TemporaryDirectory directory_;
  const std::string drain_output_ = directory_ / "drain.out";
  std::optional<Process> drain_;
};

TEST_F(DrainTest, OneThatIsTakenBackEndsNothing) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  Batch pair = PostUndefined(end);
  StartDrain(kDrainsFor);
  Ferryctl("undrain");
  EXPECT_EQ(drain_->Wait(), std::optional<int>(1)) << "told at once, not at its deadline";
  EXPECT_THAT(ReadFile(drain_output_), HasSubstr("an undrain has taken it back"));
  End clock = OpenEnd(0, 4096, 1);
  EXPECT_THAT(PostClock(clock, kPastTheDrain).Wait(kSoon),
              Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_FALSE(pair.over()) << "by the deadline of the drain of before";
  EXPECT_THAT(end.session.Define(0, 1), IsOk());
  EXPECT_THAT(pair.Wait(kSoon), IsOk());
}

TEST_F(DrainTest, OneThatIsInterruptedTakesItsDeadlineAlong) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096), clock = OpenEnd(0, 4096, 1);
  Batch pair = PostUndefined(end);
  // Before it drains, since it takes nothing new then.
  Batch past = PostClock(clock, 3 * kPastTheDrain);
  StartDrain(kDrainsFor);
  drain_->Signal(SIGINT);
  EXPECT_EQ(drain_->Wait(), std::optional<int>(128 + SIGINT));
  ASSERT_TRUE(LogHas("what is in flight ends by itself; undrain takes it back"));
  EXPECT_THAT(past.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_TRUE(node(0).admin().Status().draining());
  EXPECT_FALSE(pair.over()) << "by a deadline that nobody waits for";
  EXPECT_THAT(end.session.Define(0, 1), IsOk());
  EXPECT_THAT(pair.Wait(kSoon), IsOk());
  Ferryctl("undrain");
  EXPECT_FALSE(node(0).admin().Status().draining());
}

TEST_F(DrainTest, SigtermJoinsOneAndIsNotTakenBack) {
  ClusterOptions options;
  options.nodes = 1;
  options.more = "drain: { timeout: 1h }\n";
  Start(options);
  End end = OpenEnd(0, 4096);
  Batch pair = PostUndefined(end);
  StartDrain("2h");
  node(0).Signal(SIGTERM);
  ASSERT_TRUE(LogHas("in flight, at most 60 min")) << "the earlier deadline counts";
  EXPECT_THAT(Ferryctl("undrain", 4), HasSubstr("node-a was told to stop"));
  EXPECT_TRUE(node(0).admin().Status().draining());
  EXPECT_THAT(end.session.Define(0, 1), IsOk());
  EXPECT_EQ(drain_->Wait(), std::optional<int>(0)) << ReadFile(drain_output_);
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
}

// --- Signals.

TEST_F(DrainTest, OtherSignalsDoNothingAndSaySo) {
  ClusterOptions options;
  options.transfer = kUcxTcpRoute.transfer;  // so that UCX is there, which has handlers of its own
  options.environment = {"UCX_DEBUG_SIGNO=1", "UCX_HANDLE_ERRORS=bt"};
  Start(options);
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "before");
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    node(0).Signal(signal);
    ASSERT_TRUE(Await([&] {
      return absl::StrContains(
          node(0).Log(), absl::StrCat("daemon.signal: ", strsignal(signal), ": does nothing"));
    })) << node(0).Log();
  }
  ExpectTransfer(source, destination, "after");
  // Nor while it drains.
  Batch send = PostUndefined(source);
  node(0).Signal(SIGTERM);
  ASSERT_TRUE(Await([&] { return node(0).admin().Status().draining(); }));
  node(0).Signal(SIGHUP);
  ASSERT_TRUE(Await([&] { return absl::StrContains(node(0).Log(), "Hangup: it stops"); }));
  EXPECT_THAT(node(0).Log(), Not(HasSubstr("UCX")))
      << "the debug mode that it has on UCX_DEBUG_SIGNO";
  EXPECT_FALSE(send.over());
  EXPECT_THAT(source.session.Define(0, 1), IsOk());
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
}

TEST_F(DrainTest, SigtermWhileItStartsIsADrain) {
  TemporaryDirectory directory;
  SpawnOptions spawn;
  spawn.arguments = {FerrydProgram(), "--runtime-dir", directory / "run"};
  spawn.output = directory / "log";
  Process daemon(spawn);
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(directory / "run"); }));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), std::optional<int>(0)) << ReadFile(directory / "log");
  EXPECT_THAT(ReadFile(directory / "log"), HasSubstr("0 transfers ended unfinished"));
}

// --- Seen from the other node.

TEST_F(DrainTest, WhoWaitsForAPeerIsToldThatItDrains) {
  Start();
  End here = OpenEnd(0, 4096), there = OpenEnd(1, 4096);
  ExpectTransfer(here, there, "up");
  End one = OpenEnd(1, 4096, 1), paired = OpenEnd(1, 4096);  // a counter each: it waits in order
  Batch pair = [&] {                                         // may yet end well
    Transfer later(paired.device, "pair", {here.arena.All()});
    later.defined_at = Transfer::DefinedAt{0, 1};
    return Must(here.session.Send(0, {later}));
  }();
  Batch pair_received = Receive(paired, here, "pair", {paired.arena.All()});
  ASSERT_TRUE(Await([&] { return node(0).admin().Count("matched") == 1; }));
  Batch send = Send(there, here, "never received", {there.arena.All()});
  Batch receive = Receive(one, here, "never sent", {one.arena.All()});
  StartDrain("2h");
  const auto drains = ContainsRegex("node-a drains, for at most (2 h|119 min( [0-9]+ s)?) more");
  EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/DRAINING", drains));
  EXPECT_THAT(receive.Wait(kSoon), Is("UNAVAILABLE/DRAINING", drains));
  // New ones too, and operators see it.
  EXPECT_THAT(Send(there, here, "new", {there.arena.All()}).Wait(kSoon),
              Is("UNAVAILABLE/DRAINING", HasSubstr("post again when it serves")));
  EXPECT_THAT(Receive(one, here, "new too", {one.arena.All()}).Wait(kSoon),
              Is("UNAVAILABLE/DRAINING", drains));
  const auto status = [&] {
    return RunProgram({FerryctlProgram(), "--runtime-dir", node(1).runtime_dir(), "status"}).output;
  };
  EXPECT_THAT(status(), ContainsRegex("up, drains for (2 h|119 min( [0-9]+ s)?) at most"));
  EXPECT_TRUE(node(1).admin().Status().peers(0).draining());
  EXPECT_THAT(here.session.Define(0, 1), IsOk());
  EXPECT_THAT(pair_received.Wait(kSoon), IsOk());
  EXPECT_THAT(pair.Wait(kSoon), IsOk());
  EXPECT_EQ(drain_->Wait(), std::optional<int>(0)) << ReadFile(drain_output_);
  Ferryctl("undrain");
  ASSERT_TRUE(Await([&] { return !node(1).admin().Status().peers(0).draining(); }));
  ExpectTransfer(here, there, "again");
  ExpectTransfer(there, here, "and back");
}

}  // namespace
}  // namespace ferry::testing
