// SPDX-License-Identifier: Apache-2.0
// ferryd --check-config beside the start itself.
#include <sys/stat.h>
#include <sysexits.h>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// What the start refuses, the check does; it does not mind that a daemon runs.
TEST(CheckConfigTest, TheCheckRefusesWhatTheStartWould) {
  TemporaryDirectory directory;
  const std::string file = directory / "ferry.yaml";
  const auto run = [&](const std::string& config, const std::vector<std::string>& more = {}) {
    WriteFile(file,
              absl::StrCat("node: { name: n, runtime_dir: ", directory / "run", " }\n", config));
    std::vector<std::string> arguments = {FerrydProgram(), "--config", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  };
  const auto secret = [&](const std::string& name, mode_t mode) {
    WriteFile(directory / name, "sixteen bytes and more");
    chmod((directory / name).c_str(), mode);
    return absl::StrCat("peer: { secret_file: ", directory / name, ", insecure: true");
  };
  const std::string others =
      "membership: { nodes: [ { name: n, address: \"203.0.113.7:7411\", ids: [0] },\n"
      "  { name: b, address: \"127.0.0.1:1\", ids: [1] } ] }\ndevices: { gpus: none }\n";
  const struct {
    std::string config;
    std::string says;
  } cases[] = {
      {secret("open", 0644) + " }", "its mode 0644 lets others at it"},
      {absl::StrCat("peer: { secret_file: ", directory / "none", " }"), "No such file"},
      {absl::StrCat(others, secret("good", 0600), ", listen: \"203.0.113.7:7411\" }"),
       "203.0.113.7:7411"},
      {"metrics: { listen: \"203.0.113.7:7411\", insecure: true }", "203.0.113.7:7411"},
  };
  for (const auto& c : cases) {
    const Finished checked = run(c.config, {"--check-config"});
    EXPECT_EQ(checked.status, 78) << c.config;
    EXPECT_THAT(checked.output, HasSubstr(c.says));
    const Finished started = run(c.config);
    // An address may be there later (75), a file is wrong until somebody mends it (78).
    EXPECT_THAT(started.status, AnyOf(EX_TEMPFAIL, EX_CONFIG)) << c.config;
    EXPECT_THAT(started.output, HasSubstr(c.says));
  }
  const Finished good = run(secret("good", 0600) + " }", {"--check-config"});
  EXPECT_EQ(good.status, 0) << good.output;
}

}  // namespace
}  // namespace ferry::testing
