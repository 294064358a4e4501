// SPDX-License-Identifier: Apache-2.0
// What a reload makes of each setting, by the table of settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/config/config.h"
#include "daemon/config/schema.h"

namespace ferry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Config With(std::vector<ConfigSources::Override> overrides) {
  ConfigSources sources;
  sources.hostname = "testhost";
  sources.overrides = std::move(overrides);
  absl::StatusOr<Config> config = LoadConfig(sources);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(Config());
}

TEST(ReloadTest, NothingHasChangedOfTheSameConfiguration) {
  EXPECT_THAT(CompareConfigs(With({}), With({})), IsEmpty());
  EXPECT_TRUE(CheckReload({}).ok());
}

TEST(ReloadTest, AChangeSaysBothValues) {
  const std::vector<ConfigChange> changes =
      CompareConfigs(With({}), With({{"limits.session_bytes", "1GiB", ""}}));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].ToString(), "limits.session_bytes: 64 GiB, now 1 GiB");
  EXPECT_EQ(changes[0].taken, Taken::kByNewSessions);
  EXPECT_TRUE(CheckReload(changes).ok());
}

TEST(ReloadTest, EverySettingThatOnlyARestartTakesIsNamed) {
  const absl::Status refused =
      CheckReload(CompareConfigs(With({}), With({
                                               {"devices.host", "3", ""},
                                               {"limits.sessions", "8", ""},
                                               {"log.format", "json", ""},
                                           })));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), Reason::kConfigInvalid);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("nothing is taken over"), HasSubstr("devices.host: 2, now 3"),
                    HasSubstr("log.format: text, now json"), Not(HasSubstr("limits.sessions"))));
}

// A limit or a level that only a restart takes has its reason here.
TEST(ReloadTest, LimitsAreTakenButForThoseThatSizeWhatIsBuiltAtTheStart) {
  for (const ConfigField& field : ConfigFields()) {
    if (!absl::StartsWith(field.path, "limits.")) continue;
    const bool sizes = field.path == "limits.job_threads" || field.path == "limits.job_memory" ||
                       field.path == "limits.rpc_bytes_per_uid";
    EXPECT_EQ(field.taken == Taken::kAtRestart, sizes) << field.path;
  }
}

TEST(ReloadTest, WhatIsTakenOverIsWhatTheTableSays) {
  Config loaded = With({});
  loaded.devices.host = 7;
  loaded.log.level = "debug";
  loaded.drain.timeout = absl::Seconds(5);
  Config running = With({});
  TakeOver(loaded, running);
  EXPECT_EQ(running.log.level, "debug");
  EXPECT_EQ(running.drain.timeout, absl::Seconds(5));
  EXPECT_EQ(running.devices.host, 2u) << "it takes a restart";
}

// testhost, node-b and node-c, unless they are listed otherwise.
Config WithNodes(
    const std::vector<std::string>& others,
    const std::string& own = "{ name: testhost, address: '127.0.0.1:1', ids: [0, 1] }") {
  std::string nodes = absl::StrCat("[", own);
  for (const std::string& node : others) absl::StrAppend(&nodes, ", ", node);
  return With({{"membership.nodes", nodes + "]", ""}, {"peer.listen", "127.0.0.1:1", ""}});
}
constexpr char kB[] = "{ name: node-b, address: '127.0.0.1:2', ids: [2, 3] }";
constexpr char kC[] = "{ name: node-c, address: '127.0.0.1:3', ids: [4] }";

TEST(ReloadTest, NodesThatComeAndLeaveAreTaken) {
  const Config before = WithNodes({kB}), after = WithNodes({kC});
  const std::vector<ConfigChange> changes = CompareConfigs(before, after);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].ToString(),
            "membership.nodes[node-b]: { address: \"127.0.0.1:2\", ids: [2, 3] }, now none");
  EXPECT_EQ(changes[1].ToString(),
            "membership.nodes[node-c]: none, now { address: \"127.0.0.1:3\", ids: [4] }");
  EXPECT_TRUE(CheckReload(changes).ok());
  const MembershipChange change = CompareMembership(before, after);
  EXPECT_THAT(change.gone, ElementsAre("node-b"));
  ASSERT_EQ(change.come.size(), 1u);
  EXPECT_EQ(change.come[0], after.membership.nodes[1]);
  EXPECT_THAT(change.moved, IsEmpty());
  Config running = before;
  TakeOver(after, running);
  EXPECT_EQ(running.membership.nodes, after.membership.nodes);
}

TEST(ReloadTest, TheOrderOfNodesAndOfTheirDevicesIsNoChange) {
  const Config before = WithNodes({kB, kC});
  const Config after = WithNodes({kC, "{ name: node-b, address: '127.0.0.1:2', ids: [3, 2] }"});
  EXPECT_THAT(CompareConfigs(before, after), IsEmpty());
  const MembershipChange change = CompareMembership(before, after);
  EXPECT_THAT(change.gone, IsEmpty());
  EXPECT_THAT(change.come, IsEmpty());
  EXPECT_THAT(change.moved, IsEmpty());
}

TEST(ReloadTest, ANodeWithOtherDevicesLeavesAndComesAndOneElsewhereMoves) {
  const Config before = WithNodes({kB, kC});
  const Config after = WithNodes({"{ name: node-b, address: '127.0.0.1:2', ids: [2, 5] }",
                                  "{ name: node-c, address: '127.0.0.1:9', ids: [4] }"});
  const MembershipChange change = CompareMembership(before, after);
  EXPECT_THAT(change.gone, ElementsAre("node-b"));
  ASSERT_EQ(change.come.size(), 1u);
  EXPECT_EQ(change.come[0].name, "node-b");
  ASSERT_EQ(change.moved.size(), 1u);
  EXPECT_EQ(change.moved[0].address, "127.0.0.1:9");
}

TEST(ReloadTest, ItsOwnEntryTakesARestart) {
  const Config before = WithNodes({kB});
  for (const char* const own : {"{ name: testhost, address: 'localhost:1', ids: [0, 1] }",
                                "{ name: testhost, address: '127.0.0.1:1', ids: [1, 0] }"}) {
    const absl::Status refused = CheckReload(CompareConfigs(before, WithNodes({kB, kC}, own)));
    EXPECT_EQ(ReasonOf(refused), Reason::kConfigInvalid);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("only a restart takes membership.nodes[testhost]: "),
                      Not(HasSubstr("node-c"))));
  }
}

TEST(ReloadTest, OneThatIsAloneGetsPeersIfItHasSaidWhereItIs) {
  EXPECT_TRUE(CheckReload(CompareConfigs(WithNodes({}), WithNodes({kB}))).ok());
  EXPECT_TRUE(CheckReload(CompareConfigs(WithNodes({kB}), WithNodes({}))).ok());
  const Config silent = With({{"peer.listen", "127.0.0.1:1", ""}});
  EXPECT_THAT(std::string(CheckReload(CompareConfigs(silent, WithNodes({kB}))).message()),
              HasSubstr("membership.nodes[testhost]: { address: \"\", ids: [0, 1] }, now"));
  EXPECT_THAT(std::string(CheckReload(CompareConfigs(silent, WithNodes({kB}), 1)).message()),
              HasSubstr("ids: [0, 1, 2] }, now"));
}

TEST(ReloadTest, EverySettingThatAReloadTakesCanBeCopied) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.taken != Taken::kAtRestart) {
      EXPECT_NE(field.copy, nullptr) << field.path;
    }
  }
}

}  // namespace
}  // namespace ferry
