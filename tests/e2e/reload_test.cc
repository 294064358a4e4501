// SPDX-License-Identifier: Apache-2.0
// A running daemon reads its configuration again: what it takes over, and what it refuses.
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ReloadTest : public ClusterTest {
 protected:
  void StartWith(const std::string& limits) {
    ClusterOptions options;
    options.limits = limits;
    Start(options);
  }
  // From now on the file has `to` where it has `from`.
  void Change(const std::string& from, const std::string& to) {
    const std::string before = ReadFile(node(0).config_file());
    const std::string after = absl::StrReplaceAll(before, {{from, to}});
    ASSERT_NE(before, after) << from;
    WriteFile(node(0).config_file(), after);
  }
  std::string Metrics() {
    return HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics");
  }
  uint64_t Generation() { return node(0).admin().Status().config_generation(); }
};

TEST_F(ReloadTest, LimitsHoldFromThenOn) {
  StartWith("sessions: 1, session_bytes: 1MiB");
  const Session first = nodes().Open(0, "first");
  EXPECT_THAT(Ferryctl("reload --wait"), HasSubstr("configuration 2: nothing has changed"));
  Change("sessions: 1, session_bytes: 1MiB", "sessions: 2, session_bytes: 2MiB");
  EXPECT_THAT(Ferryctl("reload --wait"),
              AllOf(HasSubstr("configuration 3:"), HasSubstr("limits.sessions: 1, now 2\n"),
                    HasSubstr("limits.session_bytes: 1 MiB, now 2 MiB, for clients that attach")));
  Session second = nodes().Open(0, "second");
  EXPECT_EQ(first.limits().bytes, uint64_t{1} << 20);
  EXPECT_EQ(second.limits().bytes, uint64_t{2} << 20);
  Must(second.CreateArena(0, uint64_t{2} << 20));
  EXPECT_THAT(Ferryctl("status"), HasSubstr("generation 3"));
  // Down again: both stay, and nobody comes.
  Change("sessions: 2", "sessions: 1");
  Ferryctl("reload --wait");
  EXPECT_EQ(node(0).admin().Status().sessions(), 2u);
  SessionOptions options;
  options.client_dir = node(0).client_dir();
  const auto third = Session::Open(options);
  ASSERT_FALSE(third.ok());
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("2 of 1 sessions are open"));
}

TEST_F(ReloadTest, NothingIsTakenOverOfOneThatIsRefused) {
  StartWith("sessions: 8");
  Change("sessions: 8", "sessions: 9");
  const std::string good = ReadFile(node(0).config_file());
  WriteFile(node(0).config_file(), good + "\nlog: { format: json }\n");
  EXPECT_THAT(Ferryctl("reload --wait", 1),
              AllOf(HasSubstr("FAILED_PRECONDITION CONFIG_INVALID"), HasSubstr("only a restart"),
                    HasSubstr("log.format: text, now json"), Not(HasSubstr("limits.sessions"))));
  WriteFile(node(0).config_file(), good + "\nlog: { format: verse }\nlimmits: { }\n");
  EXPECT_THAT(Ferryctl("reload --wait", 1),
              AllOf(HasSubstr("INVALID_ARGUMENT CONFIG_INVALID"), HasSubstr(node(0).config_file()),
                    HasSubstr("'verse' is not one of"), HasSubstr("did you mean limits?")));
  EXPECT_EQ(Generation(), 1u);
  EXPECT_THAT(Metrics(), HasSubstr("ferry_config_last_reload_successful 0"));
  WriteFile(node(0).config_file(), good);
  EXPECT_THAT(Ferryctl("reload --wait"), HasSubstr("limits.sessions: 8, now 9"));
  EXPECT_EQ(Generation(), 2u);
  EXPECT_THAT(Metrics(), AllOf(HasSubstr("ferry_config_last_reload_successful 1"),
                               HasSubstr("ferry_config_generation 2")));
}

TEST_F(ReloadTest, SighupReloadsAndTheLogSaysWhat) {
  StartWith("sessions: 8");
  Change("sessions: 8", "sessions: 9");
  node(0).Signal(SIGHUP);
  ASSERT_TRUE(Await([&] { return Generation() == 2; }));
  EXPECT_THAT(node(0).Log(), HasSubstr("daemon.reload: generation 2: limits.sessions: 8, now 9"));
  WriteFile(node(0).config_file(), "node: [");
  node(0).Signal(SIGHUP);
  ASSERT_TRUE(Await([&] { return absl::StrContains(node(0).Log(), "daemon.reload: refused"); }));
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "after");
}

TEST_F(ReloadTest, TheLevelOfTheLogIsTheFilesAgain) {
  StartWith("sessions: 8");
  Ferryctl("loglevel error");
  Ferryctl("reload --wait");
  EXPECT_NE(node(0).admin().Status().log_level(), "error");
}

TEST_F(ReloadTest, ADaemonThatStopsReloadsNoMore) {
  StartWith("sessions: 8");
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "up");
  Transfer later(2, "never", {});
  later.defined_at = Transfer::DefinedAt{0, 1};
  Must(destination.session.Receive(2, {Transfer(0, "never", {})}));
  Batch send = Must(source.session.Send(0, {later}));
  node(0).Signal(SIGTERM);
  ASSERT_TRUE(Await([&] { return node(0).admin().Status().draining(); }));
  EXPECT_THAT(Ferryctl("reload --wait", 4), HasSubstr("node-a was told to stop"));
  EXPECT_THAT(source.session.Define(0, 1), IsOk());
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
}

}  // namespace
}  // namespace ferry::testing
