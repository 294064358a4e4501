// SPDX-License-Identifier: Apache-2.0
// What a reload makes of each setting, by the table of settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "base/status.h"
#include "daemon/config/config.h"
#include "daemon/config/schema.h"

namespace ferry {
namespace {

using ::testing::AllOf;
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
  EXPECT_EQ(changes[0].ToString(), "limits.session_bytes: 64GiB, now 1GiB");
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

TEST(ReloadTest, EverySettingThatAReloadTakesCanBeCopied) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.taken != Taken::kAtRestart) {
      EXPECT_NE(field.copy, nullptr) << field.path;
    }
  }
}

}  // namespace
}  // namespace ferry
