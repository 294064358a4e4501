// SPDX-License-Identifier: Apache-2.0
// Limits of the daemon's process, from too small to enough: it serves, or it ends in time with a
// text that names the limit.
#include <signal.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

// Its threads are counted for itself.
constexpr uid_t kUser = 61300;
constexpr uint64_t kMib = 1 << 20;

struct Limit {
  const char* name;  // of prlimit
  std::vector<uint64_t> values;
};
void PrintTo(const Limit& limit, std::ostream* out) { *out << limit.name; }

class LimitsTest : public ::testing::TestWithParam<Limit> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
    ASSERT_EQ(chown(directory_.path().c_str(), kUser, kUser), 0);
  }
  std::vector<std::string> Command(const std::string& program,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> command = {program, "--runtime-dir", directory_ / "run"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  SpawnOptions Limited(uint64_t value, const std::vector<std::string>& command,
                       const std::string& output) const {
    SpawnOptions spawn;
    spawn.arguments = {"/usr/bin/prlimit", absl::StrCat("--", GetParam().name, "=", value)};
    spawn.arguments.insert(spawn.arguments.end(), command.begin(), command.end());
    spawn.output = output;
    spawn.uid = kUser;
    return spawn;
  }
  // It has ended, though not by a signal, and says which limit it was.
  static void ExpectNamed(int status, const std::string& output, uint64_t value) {
    EXPECT_LT(status, 128) << value << ": " << output;
    EXPECT_THAT(output, ::testing::HasSubstr("ulimit")) << value;
  }
  bool Serves() const { return RunProgram(Command(FerryctlProgram(), {"status"})).status == 0; }

  TemporaryDirectory directory_;
};

TEST_P(LimitsTest, ADaemonServesOrNamesIt) {
  for (const uint64_t value : GetParam().values) {
    const std::string output = directory_ / absl::StrCat("log", value);
    Process daemon(Limited(value, Command(FerrydProgram(), {"--gpus", "none"}), output));
    bool serves = false;
    EXPECT_TRUE(Await([&] { return !daemon.Running() || (serves = Serves()); }))
        << value << ": " << ReadFile(output);
    if (serves) daemon.Signal(SIGTERM);
    const std::optional<int> status = daemon.Wait();
    ASSERT_TRUE(status.has_value()) << value << " does not end: " << ReadFile(output);
    if (serves) {
      EXPECT_EQ(*status, 0) << value << ": " << ReadFile(output);
    } else {
      ExpectNamed(*status, ReadFile(output), value);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Limits, LimitsTest,
    ::testing::Values(Limit{"nproc", {1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64}},
                      Limit{"fsize", {4096, 65536, kMib - 1, kMib, 1 << 30}},
                      Limit{"as", {128 * kMib, 256 * kMib, 512 * kMib, 1024 * kMib, 4096 * kMib}},
                      Limit{"memlock", {0, 4096, kMib}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ferry::testing
