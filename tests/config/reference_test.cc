// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/config.h"
#include "daemon/config/schema.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfigReferenceTest, ThePageOfTheDocumentationIsWhatTheTableSays) {
  std::ifstream stream(FERRY_CONFIGURATION_PAGE);
  std::stringstream page;
  page << stream.rdbuf();
  EXPECT_EQ(page.str(), ConfigReference())
      << "write it anew: build/release/bin/ferryd --print-settings > docs/configuration.md";
}

TEST(ConfigReferenceTest, EverySettingIsExplained) {
  const std::string reference = ConfigReference();
  for (const ConfigField& field : ConfigFields()) {
    if (field.print == nullptr) continue;  // not supported
    EXPECT_FALSE(field.meaning.empty()) << field.path;
    EXPECT_FALSE(field.type.empty()) << field.path;
    EXPECT_THAT(reference, HasSubstr(absl::StrCat("| `", field.path, "` | ")));
  }
}

TEST(ConfigReferenceTest, EveryVariableOfThePageSetsItsSetting) {
  for (const ConfigField& field : ConfigFields()) {
    ConfigSources sources;
    sources.hostname = "testhost";
    // A map is nothing that any setting takes.
    sources.environment = {{EnvironmentName(field), "{"}};
    const std::string message(LoadConfig(sources).status().message());
    EXPECT_THAT(message, Not(HasSubstr("unknown key"))) << EnvironmentName(field);
  }
  for (const auto& [name, path] : ShortEnvironmentNames()) {
    EXPECT_NE(FindConfigField(path), nullptr) << name;
  }
}

}  // namespace
}  // namespace ferry
